%% Erlang/OTP's own supervisor and gen_server, measured from inside the virtual machine.
%% Run by on_otp.py: erl -extra MEASUREMENT NUMBER... ; prints one line of JSON.
%% The module is the callbacks of both behaviours; init/1 tells them apart by its argument.
-module(otp_peer).
-export([main/0, init/1, start_child/2, handle_call/3, handle_cast/2]).

main() ->
    [Measurement | Numbers] = init:get_plain_arguments(),
    Figures = measure(Measurement, [list_to_integer(Number) || Number <- Numbers]),
    io:format("{~s}~n", [lists:join(",", [figure(F) || F <- Figures])]),
    halt(0).

figure({Name, Values}) when is_list(Values) ->
    io_lib:format("\"~s\":[~s]", [Name, lists:join(",", [io_lib:format("~.3f", [float(V)]) || V <- Values])]);
figure({Name, Value}) -> io_lib:format("\"~s\":~.6f", [Name, float(Value)]).

%% ---- the tree ----

tree(Children) ->
    {ok, _} = supervisor:start_link(?MODULE, {supervisor, Children, self()}),
    [hello() || _ <- lists:seq(1, Children)].

init({supervisor, Children, Prober}) ->
    {ok, {#{strategy => one_for_one, intensity => 1000000, period => 1},
          [#{id => Number, start => {?MODULE, start_child, [Number, Prober]}, shutdown => brutal_kill}
           || Number <- lists:seq(1, Children)]}};
init({child, Number, Prober}) ->
    Prober ! {hello, Number, self()},
    {ok, 0}.

start_child(Number, Prober) -> gen_server:start_link(?MODULE, {child, Number, Prober}, []).

handle_call(handled, _From, Handled) -> {reply, Handled, Handled};
handle_call({blob, Blob}, _From, Handled) -> {reply, byte_size(Blob), Handled};
handle_call(Text, _From, Handled) -> {reply, Text, Handled}.

handle_cast(_Item, Handled) -> {noreply, Handled + 1}.

hello() ->
    receive {hello, Number, Pid} ->
        _ = gen_server:call(Pid, ping, 20000),
        {Number, Pid}
    after 20000 -> missed
    end.

%% ---- measurements ----

measure("restart", [Children, Kills]) ->
    Tree = maps:from_list(tree(Children)),
    Victims = [1 + (I * max(1, Children div Kills)) rem Children || I <- lists:seq(0, Kills - 1)],
    {Times, Now} = lists:mapfoldl(fun kill/2, Tree, Victims),
    Began = erlang:monotonic_time(microsecond),
    Refs = [{erlang:monitor(process, Pid), exit(Pid, kill)} || Pid <- maps:values(Now)],
    Back = [hello() || _ <- Refs],
    Mass = (erlang:monotonic_time(microsecond) - Began) / 1000,
    Wrong = [1 || {Ref, _} <- Refs, down(Ref) =/= killed],
    [{kill_ms, Times}, {mass_ms, [Mass]}, {missed, length([1 || missed <- Back])}, {wrong, length(Wrong)}];
measure("messages", [RoundTrips, Stream, References]) ->
    [{_, Child}] = tree(1),
    Text = binary:copy(<<"x">>, 100),
    [gen_server:call(Child, Text) || _ <- lists:seq(1, 1000)],
    {_, _} = statistics(runtime),
    Trips = [timed(fun() -> gen_server:call(Child, Text) end) || _ <- lists:seq(1, RoundTrips)],
    {_, TripsCpu} = statistics(runtime),
    Began = erlang:monotonic_time(microsecond),
    [gen_server:cast(Child, {item, Text}) || _ <- lists:seq(1, Stream)],
    Stream = gen_server:call(Child, handled, 60000),
    Took = erlang:monotonic_time(microsecond) - Began,
    {_, StreamCpu} = statistics(runtime),
    Blob = binary:copy(<<"x">>, 300000),
    Blobs = [timed(fun() -> gen_server:call(Child, {blob, Blob}) end) || _ <- lists:seq(1, References)],
    [{round_trip_us, Trips}, {round_trip_cpu_us, 1000 * TripsCpu / (2 * RoundTrips)},
     {stream_per_s, Stream / Took * 1000000}, {stream_cpu_us, 1000 * StreamCpu / Stream}, {reference_us, Blobs}];
measure("idle", [Children, Seconds]) ->
    Pids = [Pid || {_, Pid} <- tree(Children)],
    {_, _} = statistics(runtime),
    timer:sleep(Seconds * 1000),
    {_, Cpu} = statistics(runtime),
    Bytes = [element(2, process_info(Pid, memory)) || Pid <- Pids],
    [{idle_cpu_percent, Cpu / 10 / Seconds}, {private_mib, [B / 1048576 || B <- Bytes]}].

kill(Number, Tree) ->
    Pid = maps:get(Number, Tree),
    Began = erlang:monotonic_time(nanosecond),
    exit(Pid, kill),
    {Number, Successor} = hello(),
    {(erlang:monotonic_time(nanosecond) - Began) / 1000000, Tree#{Number := Successor}}.

down(Ref) -> receive {'DOWN', Ref, process, _, Reason} -> Reason after 5000 -> none end.

timed(Fun) ->
    Began = erlang:monotonic_time(nanosecond),
    Fun(),
    (erlang:monotonic_time(nanosecond) - Began) / 1000.

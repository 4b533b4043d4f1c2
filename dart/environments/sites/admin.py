"""An admin console: users with roles and activity, services with logs, an audit trail, roles and settings."""

from collections.abc import Iterator

from dart.environments.sites.machine import (
    Assign,
    Element,
    Field,
    Kind,
    RecordGuard,
    SiteRecord,
    TypedText,
)
from dart.environments.sites.site import (
    Actions,
    Facts,
    Item,
    Listing,
    Paragraph,
    RecordChange,
    Shown,
    SiteDefinition,
    SiteScreen,
    Tabs,
    button,
    check_box,
    link,
    notice,
    pages,
)
from dart.environments.sites.words import Words

USERS, PER_PAGE = 15, 5
ROLES = {"viewer": "Viewer", "editor": "Editor", "owner": "Owner"}
SERVICES = ("mailer", "search", "billing", "reports", "uploads", "gateway")
SERVICE_STATES = ((1, "running"), (0, "stopped"))
SECURITY = {"two-factor": "Two-factor sign-in", "lockout": "Lock after five tries", "audit": "Detailed audit"}


def admin(words: Words) -> SiteDefinition:
    """Return an admin console whose users and figures are drawn from ``words``."""
    users = words.people(USERS)
    return SiteDefinition(
        name="admin",
        brand=words.some(("Control Room", "Backstage", "Switchboard", "Operator", "Cockpit"), 1)[0],
        tagline="Changes take effect at once",
        navigation=(
            ("Dashboard", "home"),
            ("Users", "users-1"),
            ("Services", "services"),
            ("Audit", "audit-1"),
            ("Roles", "roles"),
        ),
        menu=("System", (("Security", "security"), ("General", "general"), ("Backups", "backups"))),
        screens=tuple(_screens(words, users)),
        records=_records(),
        changes=tuple(_changes(users)),
    )


def _records() -> dict[str, SiteRecord]:
    records = {"invited": SiteRecord(""), "site/title": SiteRecord("Main"), "backups": SiteRecord(3)}
    for number in range(USERS):
        records[f"role/{number}"] = SiteRecord("viewer")
        records[f"locked/{number}"] = SiteRecord(0)
    records |= {f"running/{service}": SiteRecord(1) for service in SERVICES}
    return records | {f"security/{name}": SiteRecord(0) for name in SECURITY}


def _screens(words: Words, users: list[str]) -> Iterator[SiteScreen]:
    figures = (
        ("Users", str(len(users))),
        ("Requests today", f"{words.number(10, 99)},{words.number(100, 999)}"),
        ("Disk", f"{words.number(20, 80)} % full"),
        ("Backups", Shown("backups")),
    )
    quick = (link("Invite a user", "invite"), link("Security", "security"))
    yield SiteScreen("home", "the dashboard", "Dashboard", (Facts(figures), Actions(quick)))
    yield from _user_list(users)
    for number, user in enumerate(users):
        yield from _user(words, number, user)
    yield from _services(words)
    yield from _audit(words, users)
    yield from _roles(users)
    yield from _system()


def _user_list(users: list[str]) -> Iterator[SiteScreen]:
    lines = [
        Item(
            link(user, f"user-{number}"),
            (
                Shown(f"role/{number}", words=tuple(ROLES.items())),
                Shown(f"locked/{number}", words=((0, "active"), (1, "locked"))),
            ),
        )
        for number, user in enumerate(users)
    ]
    shelves = pages(lines, PER_PAGE)
    for page, shelf in enumerate(shelves, 1):
        turns = Tabs(tuple((f"Page {n}", f"users-{n}") for n in range(1, len(shelves) + 1)))
        invite = Actions((link("Invite a user", "invite"),))
        yield SiteScreen(
            f"users-{page}", f"page {page} of the users", "Users", (turns, Listing(shelf), invite)
        )
    effects = (Assign("invited", TypedText("name")), notice("The invitation was sent."))
    form = Element(Kind.FORM, "Invite", "users-1", effects, fields=(Field("name", "Name"),))
    yield SiteScreen("invite", "the form to invite a user", "Invite a user", (Actions((form,)),))


def _user(words: Words, number: int, user: str) -> Iterator[SiteScreen]:
    role, locked = f"role/{number}", f"locked/{number}"
    ids = (f"user-{number}", f"access-{number}", f"activity-{number}")
    views = Tabs(tuple(zip(("Profile", "Access", "Activity"), ids, strict=True)))
    facts = (("Joined", words.date()), ("Team", words.some(("Sales", "Support", "Research"), 1)[0]))
    lock = check_box("Locked", locked)
    yield SiteScreen(ids[0], f'the profile of "{user}"', user, (views, Facts(facts), Actions((lock,))))
    buttons = tuple(
        button(
            f"Make {label.lower()}",
            (Assign(role, name), notice(f"The role is {label} now.")),
            (RecordGuard(role, "is not", name),),
        )
        for name, label in ROLES.items()
    )
    now = Facts((("Role", Shown(role, words=tuple(ROLES.items()))),))
    yield SiteScreen(ids[1], f'the access of "{user}"', user, (views, now, Actions(buttons)))
    events = tuple(
        Item(event, (words.date(),))
        for event in words.some(("Signed in", "Changed password", "Made a report", "Sent a file"), 3)
    )
    yield SiteScreen(ids[2], f'the activity of "{user}"', user, (views, Listing(events)))


def _services(words: Words) -> Iterator[SiteScreen]:
    lines = tuple(
        Item(
            link(service.capitalize(), f"service-{service}"),
            (Shown(f"running/{service}", words=SERVICE_STATES),),
        )
        for service in SERVICES
    )
    yield SiteScreen("services", "the list of services", "Services", (Listing(lines),))
    for service in SERVICES:
        record, ids = f"running/{service}", (f"service-{service}", f"logs-{service}")
        views = Tabs((("Status", ids[0]), ("Logs", ids[1])))
        facts = (
            ("State", Shown(record, words=SERVICE_STATES)),
            ("Version", f"{words.number(1, 5)}.{words.number(0, 20)}"),
            ("Memory", f"{words.number(50, 900)} MB"),
        )
        switches = (
            button("Stop", (Assign(record, 0),), (RecordGuard(record, "is", 1),)),
            button("Start", (Assign(record, 1),), (RecordGuard(record, "is", 0),)),
        )
        title = service.capitalize()
        yield SiteScreen(
            ids[0],
            f'the status of the service "{service}"',
            title,
            (views, Facts(facts), Actions(switches), Actions((link("All services", "services"),))),
        )
        logs = tuple(
            Item(line, (f"{words.number(0, 23):02}:{words.number(0, 59):02}",))
            for line in words.some(("Started", "Slow answer", "Cache is full", "Reloaded", "Retry"), 3)
        )
        yield SiteScreen(ids[1], f'the logs of the service "{service}"', title, (views, Listing(logs)))


def _audit(words: Words, users: list[str]) -> Iterator[SiteScreen]:
    lines = [
        Item(f"{user} {deed}", (words.date(),))
        for user, deed in zip(
            users[:8], words.shuffled(("changed a role", "stopped a service", "signed in"), 8), strict=True
        )
    ]
    for page, shelf in enumerate(pages(lines, 4), 1):
        turns = Tabs((("Newest", "audit-1"), ("Older", "audit-2")))
        yield SiteScreen(
            f"audit-{page}", f"page {page} of the audit trail", "Audit trail", (turns, Listing(shelf))
        )


def _roles(users: list[str]) -> Iterator[SiteScreen]:
    lines = tuple(Item(link(label, f"role-{role}")) for role, label in ROLES.items())
    yield SiteScreen("roles", "the list of roles", "Roles", (Listing(lines),))
    for role, label in ROLES.items():
        who = tuple(
            Item(link(user, f"user-{number}"), guards=(RecordGuard(f"role/{number}", "is", role),))
            for number, user in enumerate(users[:6])
        )
        yield SiteScreen(f"role-{role}", f'the role "{label}"', label, (Paragraph("Newest:"), Listing(who)))


def _system() -> Iterator[SiteScreen]:
    views = Tabs((("Security", "security"), ("General", "general"), ("Backups", "backups")))
    boxes = tuple(check_box(label, f"security/{name}") for name, label in SECURITY.items())
    yield SiteScreen("security", "the security settings", "Security", (views, Actions(boxes)))
    rename = Element(
        Kind.FORM,
        "Save",
        effects=(Assign("site/title", TypedText("title")),),
        fields=(Field("title", "Title"),),
    )
    title = Facts((("Title", Shown("site/title")),))
    yield SiteScreen("general", "the general settings", "General", (views, title, Actions((rename,))))
    back_up = button("Back up now", (Assign("backups", 4),), (RecordGuard("backups", "below", 4),))
    kept = Facts((("Kept", Shown("backups", after=" copies")),))
    yield SiteScreen("backups", "the backups", "Backups", (views, kept, Actions((back_up,))))


def _changes(users: list[str]) -> Iterator[RecordChange]:
    for number, user in enumerate(users):
        for role in ("editor", "owner"):
            label = ROLES[role].lower()
            sentences = (f'Make "{user}" an {label}.', f'Give "{user}" the role {label}.')
            yield RecordChange(sentences, ((f"role/{number}", role),))
        yield RecordChange((f'Lock the user "{user}".', f'Lock "{user}".'), ((f"locked/{number}", 1),))
    for service in SERVICES:
        yield RecordChange((f'Stop the service "{service}".',), ((f"running/{service}", 0),))
    for name, label in SECURITY.items():
        yield RecordChange((f'Switch on "{label}".', f'Enable "{label}".'), ((f"security/{name}", 1),))
    for name in ("Ada", "Hugo", "Rosa"):
        yield RecordChange((f'Invite "{name}".', f'Send an invitation to "{name}".'), (("invited", name),))
    for title in ("Winter", "Staging"):
        yield RecordChange((f'Change the title in the settings to "{title}".',), (("site/title", title),))
    yield RecordChange(("Make a backup.", "Back up now."), (("backups", 4),))

"""An actor that watches another, waits without blocking, and keeps a promise about time."""

from dataclasses import dataclass
from time import sleep

from actors import Actor, AskTimeout, Down, Sender, message, receives
from supervision import supervised, worker


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Render:
    """Answered by Picture, after a while."""

    page: str


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    page: str
    by_incarnation: int


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Album:
    """Answered by Pictures."""

    pages: tuple[str, ...]


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Pictures:
    pictures: tuple[Picture, ...]
    too_late: tuple[str, ...]
    deaths: tuple[str, ...]


class Renderer(Actor):
    """Does something slow in a thread; its mailbox stays open meanwhile."""

    @receives(Render)
    async def render(self, call: Render, sender: Sender) -> Picture:
        if call.page == "/crash":
            raise MemoryError(f"{call.page} is too large")
        seconds = 60.0 if call.page == "/slow" else 0.01
        await self.in_thread(lambda: sleep(seconds), name=f"render {call.page}", deadline_s=120.0)
        return Picture(page=call.page, by_incarnation=self.identity.incarnation)


class Librarian(Actor):
    """Asks for all pages at once and reports the ones that come too late."""

    def on_start(self) -> None:
        self.deaths: list[str] = []
        self.monitor("renderer")

    @receives(Down)
    def renderer_is_down(self, news: Down, sender: Sender) -> None:
        self.deaths.append(news.reason)

    @receives(Album)
    async def album(self, call: Album, sender: Sender) -> Pictures:
        pictures, too_late = [], []
        for page, answer in [(p, self.ask("renderer", Render(page=p), deadline_s=1.0)) for p in call.pages]:
            try:
                pictures.append(await answer)
            except AskTimeout:
                too_late.append(page)
        return Pictures(pictures=tuple(pictures), too_late=tuple(too_late), deaths=tuple(self.deaths))


def main() -> None:
    with supervised(worker("renderer", Renderer), worker("librarian", Librarian)) as system:
        album = system.ask("librarian", Album(pages=("/a", "/slow", "/b")))
        print([picture.page for picture in album.pictures], "too late:", album.too_late)
        system.tell("renderer", Render(page="/crash"))
        system.await_ready("renderer", incarnation=2)
        album = system.ask("librarian", Album(pages=("/c",)))
        print(album.pictures[0])
        print("meanwhile:", album.deaths[0])


if __name__ == "__main__":
    main()

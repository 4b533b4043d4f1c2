"""A mail client: folders, labels, messages, replies, contacts and settings."""

from collections.abc import Iterator

from dart.environments.sites.machine import (
    Assign,
    Element,
    Field,
    Kind,
    RecordGuard,
    Scope,
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
from dart.environments.sites.words import TOPICS, Words

FOLDERS = {"inbox": "Inbox", "archive": "Archive", "spam": "Spam", "trash": "Trash"}
FIRST_FOLDERS = ("inbox",) * 12 + ("archive",) * 6 + ("spam",) * 3 + ("trash",) * 3
"""The folder of each message at the start."""

PER_PAGE = 6
CONTACTS = 8
SETTINGS = {"sounds": "Sounds", "preview": "Message preview", "receipts": "Read receipts"}


def mail(words: Words) -> SiteDefinition:
    """Return a mail client whose people and messages are drawn from ``words``."""
    people, subjects = words.people(CONTACTS), words.some(TOPICS, len(FIRST_FOLDERS))
    return SiteDefinition(
        name="mail",
        brand=words.some(("Postbox", "Letterbird", "Quickmail", "Envelope", "Dispatch"), 1)[0],
        tagline="Your letters, sorted",
        navigation=(
            ("Inbox", "home"),
            ("Starred", "starred"),
            ("Archive", "archive"),
            ("Contacts", "contacts"),
            ("Write", "write"),
        ),
        menu=("More", (("Spam", "spam"), ("Trash", "trash"), ("Sent", "sent"), ("Settings", "settings"))),
        search=None,
        screens=tuple(_screens(words, people, subjects)),
        records=_records(),
        changes=tuple(_changes(people, subjects)),
    )


def _records() -> dict[str, SiteRecord]:
    records = {"sent/to": SiteRecord(""), "sent/subject": SiteRecord(""), "sent/reply": SiteRecord("")}
    for number, folder in enumerate(FIRST_FOLDERS):
        records[f"folder/{number}"] = SiteRecord(folder)
        records[f"star/{number}"] = SiteRecord(0)
        records[f"read/{number}"] = SiteRecord(0, Scope.INCIDENTAL)
    records |= {f"blocked/{number}": SiteRecord(0) for number in range(CONTACTS)}
    return records | {f"setting/{name}": SiteRecord(0) for name in SETTINGS}


def _screens(words: Words, people: list[str], subjects: list[str]) -> Iterator[SiteScreen]:
    senders, dates = words.shuffled(tuple(people), len(subjects)), [words.date() for _ in subjects]
    lines = [
        _line(number, subject, senders[number], dates[number]) for number, subject in enumerate(subjects)
    ]
    yield from _folders(lines)
    for number, subject in enumerate(subjects):
        yield from _message(number, subject, senders[number], dates[number])
    yield from _people(people)
    yield from _writing()
    yield from _settings(words)


def _line(number: int, subject: str, sender: str, date: str) -> Item:
    opened = Element(
        Kind.LINK, subject.capitalize(), f"message-{number}", effects=(Assign(f"read/{number}", 1),)
    )
    return Item(opened, (sender, date, Shown(f"read/{number}", words=((0, "new"), (1, "")))))


def _in_folder(lines: list[Item], folder: str) -> list[Item]:
    """Return all messages for the list of a folder, each with a guard that hides it in other folders."""
    return [
        Item(line.title, line.details, line.actions, (RecordGuard(f"folder/{number}", "is", folder),))
        for number, line in enumerate(lines)
    ]


def _folders(lines: list[Item]) -> Iterator[SiteScreen]:
    inbox = [
        line
        for line, first in zip(_in_folder(lines, "inbox"), FIRST_FOLDERS, strict=True)
        if first == "inbox"
    ]
    newest, older = pages(inbox, PER_PAGE)
    turns = Tabs((("Newest", "home"), ("Older", "inbox-2")))
    yield SiteScreen("home", "the inbox", "Inbox", (turns, Listing(newest)))
    moved = [
        line
        for line, first in zip(_in_folder(lines, "inbox"), FIRST_FOLDERS, strict=True)
        if first != "inbox"
    ]
    yield SiteScreen(
        "inbox-2", "the older messages of the inbox", "Inbox", (turns, Listing((*older, *moved)))
    )
    for folder in ("archive", "spam", "trash"):
        label = FOLDERS[folder]
        yield SiteScreen(folder, f"the folder {label}", label, (Listing(tuple(_in_folder(lines, folder))),))
    starred = tuple(
        Item(line.title, line.details, (), (RecordGuard(f"star/{number}", "is", 1),))
        for number, line in enumerate(lines)
    )
    yield SiteScreen(
        "starred", "the starred messages", "Starred", (Listing(starred, "No starred messages."),)
    )


def _message(number: int, subject: str, sender: str, date: str) -> Iterator[SiteScreen]:
    folder = f"folder/{number}"
    moves = tuple(
        button(
            label,
            (Assign(folder, target), notice(f"Moved to {FOLDERS[target]}.")),
            (RecordGuard(folder, "is not", target),),
        )
        for label, target in (
            ("Archive", "archive"),
            ("Spam", "spam"),
            ("Delete", "trash"),
            ("Restore", "inbox"),
        )
    )
    star = check_box("Starred", f"star/{number}")
    facts = (("From", sender), ("Date", date), ("Folder", Shown(folder, words=tuple(FOLDERS.items()))))
    name = f'the message "{subject}"'
    yield SiteScreen(
        f"message-{number}",
        name,
        subject.capitalize(),
        (
            Facts(facts),
            Paragraph(f"Hello, this is about the {subject}. Tell me what you think. {sender.split()[0]}"),
            Actions((link("Reply", f"reply-{number}"), star)),
            Actions(moves),
        ),
    )
    send = Element(
        Kind.FORM,
        "Send the reply",
        f"message-{number}",
        (Assign("sent/reply", TypedText("text")), notice("The reply is on its way.")),
        fields=(Field("text", "Text"),),
    )
    back = Actions((link("Discard", f"message-{number}"),))
    yield SiteScreen(
        f"reply-{number}", f"the reply form of {name}", f"Reply to {sender}", (Actions((send,)), back)
    )


def _people(people: list[str]) -> Iterator[SiteScreen]:
    lines = tuple(Item(link(person, f"contact-{number}")) for number, person in enumerate(people))
    yield SiteScreen("contacts", "the list of contacts", "Contacts", (Listing(lines),))
    for number, person in enumerate(people):
        first = person.split()[0].lower()
        facts = (("Mail", f"{first}@example.org"), ("Group", "Friends" if number % 2 else "Work"))
        block = check_box("Blocked", f"blocked/{number}")
        yield SiteScreen(
            f"contact-{number}",
            f'the contact "{person}"',
            person,
            (Facts(facts), Actions((block,)), Actions((link("All contacts", "contacts"),))),
        )


def _writing() -> Iterator[SiteScreen]:
    effects = (
        Assign("sent/to", TypedText("to")),
        Assign("sent/subject", TypedText("subject")),
        notice("The message is on its way."),
    )
    form = Element(
        Kind.FORM, "Send", "sent", effects, fields=(Field("to", "To"), Field("subject", "Subject"))
    )
    yield SiteScreen("write", "the form for a new message", "New message", (Actions((form,)),))
    is_sent = RecordGuard("sent/subject", "is not", "")
    line = Item(Shown("sent/subject"), (Shown("sent/to", "to "),), (), (is_sent,))
    yield SiteScreen("sent", "the sent messages", "Sent", (Listing((line,), "Nothing sent yet."),))


def _settings(words: Words) -> Iterator[SiteScreen]:
    views = Tabs((("General", "settings"), ("Signature", "signature"), ("Storage", "storage")))
    boxes = tuple(check_box(label, f"setting/{name}") for name, label in SETTINGS.items())
    yield SiteScreen("settings", "the general settings", "Settings", (views, Actions(boxes)))
    signature = Paragraph("Your messages end with: Kind regards.")
    yield SiteScreen("signature", "the signature in the settings", "Signature", (views, signature))
    facts = Facts((("Used", f"{words.number(1, 9)}.{words.number(0, 9)} GB"), ("Of", "15 GB")))
    yield SiteScreen("storage", "the storage page of the settings", "Storage", (views, facts))


def _changes(people: list[str], subjects: list[str]) -> Iterator[RecordChange]:
    for number, subject in enumerate(subjects):
        for verb, folder in (("Archive", "archive"), ("Delete", "trash"), ("Report as spam", "spam")):
            if FIRST_FOLDERS[number] != folder:
                sentences = (f'{verb}: "{subject}".', f'Move the message "{subject}" to {FOLDERS[folder]}.')
                yield RecordChange(sentences, ((f"folder/{number}", folder),))
        if FIRST_FOLDERS[number] != "inbox":
            yield RecordChange(
                (f'Move the message "{subject}" back to the inbox.',), ((f"folder/{number}", "inbox"),)
            )
        stars = (f'Star the message "{subject}".', f'Mark "{subject}" with a star.')
        yield RecordChange(stars, ((f"star/{number}", 1),))
    for number, person in enumerate(people):
        yield RecordChange(
            (f'Block the contact "{person}".', f'Block "{person}".'), ((f"blocked/{number}", 1),)
        )
        for subject in ("lunch", "tickets"):
            name = person.split()[0]
            yield RecordChange(
                (f'Write to "{name}" with the subject "{subject}".',),
                (("sent/to", name), ("sent/subject", subject)),
            )
    for name, label in SETTINGS.items():
        yield RecordChange((f'Switch on "{label}" in the settings.',), ((f"setting/{name}", 1),))

"""The window manager's configuration: every window opens at a fixed place, and nothing moves by itself."""

PLACES = (
    ("*", "normal", 70, 30),
    ("*", "dialog", 150, 150),
    ("?alculator", "normal", 330, 200),
    ("?ousepad", "normal", 40, 40),
    ("?cmanfm", "normal", 60, 30),
)
"""Where windows open: class, type, and upper left corner of the frame in pixels. Later entries win."""

DOUBLE_CLICK_MS = 500


def openbox_rc() -> str:
    """Return an rc.xml for openbox 3.6: focus on click, title bars that move and maximise, Alt+F4,
    Alt+Tab."""
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<openbox_config xmlns="http://openbox.org/3.4/rc">
  <focus><focusNew>yes</focusNew><followMouse>no</followMouse></focus>
  <placement><policy>Smart</policy><center>no</center></placement>
  <theme><name>Clearlooks</name><titleLayout>NLIMC</titleLayout><animateIconify>no</animateIconify></theme>
  <desktops><number>1</number><popupTime>0</popupTime></desktops>
  <resize><popupShow>Never</popupShow></resize>
  <keyboard>
    <keybind key="A-F4"><action name="Close"/></keybind>
    <keybind key="A-Tab"><action name="NextWindow"><dialog>none</dialog></action></keybind>
  </keyboard>
  <mouse>
    <dragThreshold>1</dragThreshold><doubleClickTime>{DOUBLE_CLICK_MS}</doubleClickTime>
    <context name="Titlebar">
      <mousebind button="Left" action="Press"><action name="Focus"/><action name="Raise"/></mousebind>
      <mousebind button="Left" action="Drag"><action name="Move"/></mousebind>
      <mousebind button="Left" action="DoubleClick"><action name="ToggleMaximize"/></mousebind>
    </context>
    <context name="Client">
      <mousebind button="Left" action="Press"><action name="Focus"/><action name="Raise"/></mousebind>
      <mousebind button="Middle" action="Press"><action name="Focus"/><action name="Raise"/></mousebind>
      <mousebind button="Right" action="Press"><action name="Focus"/><action name="Raise"/></mousebind>
    </context>
    <context name="Close">
      <mousebind button="Left" action="Click"><action name="Close"/></mousebind>
    </context>
    <context name="Maximize">
      <mousebind button="Left" action="Click"><action name="ToggleMaximize"/></mousebind>
    </context>
    <context name="Iconify">
      <mousebind button="Left" action="Click"><action name="Iconify"/></mousebind>
    </context>
    <context name="BRCorner">
      <mousebind button="Left" action="Drag"><action name="Resize"/></mousebind>
    </context>
  </mouse>
  <applications>{"".join(_placed(*place) for place in PLACES)}
  </applications>
</openbox_config>
"""


def _placed(window_class: str, kind: str, x: int, y: int) -> str:
    return f"""
    <application class="{window_class}" type="{kind}"><focus>yes</focus>
      <position force="yes"><x>{x}</x><y>{y}</y></position></application>"""

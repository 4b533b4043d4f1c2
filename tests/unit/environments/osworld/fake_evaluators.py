"""A small package in place of OSWorld's evaluators, with their interface, their habits and worse ones.

Its getters make of every failure None, as OSWorld's do, and some of its metrics do what no metric should.
"""

import shutil
import sys
from pathlib import Path

import msgpack

GETTERS = """
import os
import requests

def get_rule(env, config):
    return config["rules"]

def get_vm_command_line(env, config):
    url = f"http://{env.vm_ip}:{env.server_port}/execute"
    response = requests.post(url, json={"command": config["command"], "shell": config.get("shell", False)})
    return response.json()["output"] if response.status_code == 200 else None

def get_vm_file(env, config):
    try:
        content = env.controller.get_file(config["path"])
        with open(os.path.join(env.cache_dir, config["dest"]), "wb") as file:
            file.write(content)
        return os.path.join(env.cache_dir, config["dest"])
    except:
        return None

def get_opened_file(env, config):
    if env.controller.get_file(config["path"]) is None:
        raise FileNotFoundError(config["path"])
    return config["path"]

def get_cloud_file(env, config):
    response = requests.get(config["path"], stream=True)
    response.raise_for_status()
    path = os.path.join(env.cache_dir, config["dest"])
    with open(path, "wb") as file:
        for part in response.iter_content(chunk_size=8192):
            file.write(part)
    return path

def get_cache_file(env, config):
    path = os.path.join(env.cache_dir, config["path"])
    assert os.path.exists(path)
    return path

def get_zone(env, config):
    try:
        return requests.get("https://zone.example/json", timeout=5).text
    except Exception:
        return "UTC"

def get_playing(env, config):
    return requests.get(f"http://{env.vm_ip}:{env.vlc_port}/requests/status.xml", auth=("", "p")).text

def get_program(env, config):
    return env.controller.execute_python_command(config["code"])["output"].strip()

def get_accessibility_tree(env, config):
    return env.controller.get_accessibility_tree()

def get_screen(env, config):
    return env.vm_screen_size

def get_window(env, config):
    return env.controller.get_vm_window_size(config["app_class_name"])

def get_list_directory(env, config):
    return env.controller.get_vm_directory_tree(config["path"])

def get_desktop(env, config):
    return env.controller.get_vm_desktop_path()

def get_wallpaper(env, config):
    return env.controller.get_vm_wallpaper()

def get_terminal(env, config):
    return env.controller.get_terminal_output()
"""

PAGES = """
import os
from playwright.sync_api import sync_playwright

def get_tabs(env, config):
    config["urls"] = sync_playwright(env.chromium_port).splitlines()
    return [{"url": url} for url in config["urls"]]

def get_set_of_tabs(env, config):
    return set(sync_playwright(env.chromium_port).splitlines())

def get_large_page(env, config):
    sync_playwright(env.chromium_port)
    return os.urandom(config["bytes"])

def get_two_numbers(env, config):
    sync_playwright(env.chromium_port)
    return 1, 2

def get_large_file(env, config):
    sync_playwright(env.chromium_port)
    path = os.path.join(env.cache_dir, "large")
    with open(path, "wb") as file:
        file.truncate(config["bytes"])
    return path

def get_printed_page(env, config):
    path = os.path.join(env.cache_dir, config["dest"])
    with open(path, "w") as file:
        file.write(sync_playwright(env.chromium_port))
    return path

def get_page_of_a_file(env, config):
    sync_playwright(env.chromium_port)
    return env.controller.get_file(config["path"])

def get_no_page(env, config):
    raise FileNotFoundError(sync_playwright(env.chromium_port))
"""

PLAYWRIGHT = """
import socket

def sync_playwright(port):
    with socket.create_connection(("127.0.0.1", port)) as browser:
        return b"".join(iter(lambda: browser.recv(4096), b"")).decode()
"""
"""In place of Playwright: returns what the port says until it closes, and waits for ever if it does not."""

METRICS = """
import ctypes, os, socket, sys, time
import librosa

def exact_match(result, rules):
    return 1.0 if result == rules["expected"] else 0.0

def check_include_exclude(result, rules):
    if result is None:
        return 0.0
    has_all = all(one in result for one in rules["include"])
    return float(has_all and not any(one in result for one in rules["exclude"]))

def compare_text_file(actual, expected, **options):
    if not actual:
        return 0.0
    texts = []
    for path in (actual, expected):
        with open(path) as file:
            texts.append(file.read().lower() if options.get("ignore_case") else file.read())
    return 1.0 if texts[0] == texts[1] else 0.0

def has_lines(result, rules):
    return float(len(open(result).readlines()) == rules["expected"])

def is_there(result):
    return 1.0 if result else 0.0

def gives(result, rules):
    return rules["score"]

def is_one_of(result, rules):
    return result in eval(rules["expected"])

def runs(result):
    return float(eval(result, {"ctypes": ctypes, "os": os, "socket": socket, "sys": sys, "time": time}))

def compare_audios(result):
    try:
        return librosa.load(result)
    except:
        return 0.0

def takes_memory(result):
    kept = []
    while True:
        kept.append(bytearray(2**26))

def sleeps(result):
    time.sleep(600)

def rests(seconds):
    time.sleep(seconds)
    return 1.0

def leaves(result):
    sys.exit(0)

def breaks(result):
    raise RuntimeError("broken")
"""


def make_evaluators(folder: Path, version: str = "0.0.1") -> Path:
    """Make a virtual environment in a folder, with this package and the Python that runs the tests."""
    base = Path(sys.base_prefix)
    packages = folder / "lib" / f"python3.{sys.version_info[1]}" / "site-packages"
    evaluators = packages / "desktop_env" / "evaluators"
    for part, modules in (
        ("getters", {"machine": GETTERS, "pages": PAGES}),
        ("metrics", {"checks": METRICS}),
    ):
        (evaluators / part).mkdir(parents=True)
        exports = []
        for module, source in modules.items():
            (evaluators / part / f"{module}.py").write_text(source)
            names = [
                line.split()[1].partition("(")[0] for line in source.splitlines() if line.startswith("def ")
            ]
            exports.append(f"from .{module} import {', '.join(names)}\n")
        (evaluators / part / "__init__.py").write_text("".join(exports))
    (packages / f"desktop_env-{version}.dist-info").mkdir()
    (packages / "requests.py").write_text("def get(*_, **__): raise SystemError('the network')\npost = get\n")
    (packages / "playwright").mkdir()
    (packages / "playwright" / "__init__.py").touch()
    (packages / "playwright" / "sync_api.py").write_text(PLAYWRIGHT)
    shutil.copytree(Path(msgpack.__file__).parent, packages / "msgpack")
    (folder / "pyvenv.cfg").write_text(f"home = {base / 'bin'}\n")
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(base / "bin" / f"python3.{sys.version_info[1]}")
    return folder

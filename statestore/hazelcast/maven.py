"""Whether Maven will be able to fetch the server's jar, as far as is seen without running it: does the place answer where it would look?"""

from __future__ import annotations

import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from statestore.errors import Missing

_CENTRAL = "https://repo.maven.apache.org/maven2"
_PATIENCE = 5.0
_OPTIONS = ("MAVEN_ARGS", "MAVEN_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
_ELSEWHERE = ("proxy", "Proxy", "settings", "-s", "-gs", "-o", "maven.repo")
"""Each may lead it to another place than its settings do."""
_MAY_NOT = (401, 403, 405, 407)


class Sight(NamedTuple):
    """What was seen.

    Attributes:
        there: Whether the jar is to be had; None when that cannot be seen from here.
        why: Where it is, or what is in the way.
    """

    there: bool | None
    why: str


def look(maven: Path, path: str, patience: float = _PATIENCE) -> Sight:
    """See whether Maven can get something of its central repository.

    Args:
        maven: Its program.
        path: In a repository, as "com/hazelcast/...".
        patience: Seconds for an answer.
    """
    try:
        settings = list(_settings(maven))
    except (OSError, ElementTree.ParseError) as error:
        return Sight(False, f"Maven's settings cannot be read: {error}")
    kept = Path(next(_texts(settings, "localRepository"), user_home() / ".m2" / "repository")) / path
    if kept.is_file():
        return Sight(True, str(kept))
    told = [v for v in _OPTIONS if any(word in os.environ.get(v, "") for word in _ELSEWHERE)]
    if told:
        return Sight(None, f"${told[0]} says where it looks")
    if any(p.findtext("active", "true").strip() == "true" for s in settings for p in s.iter("proxy")):
        return Sight(None, "it goes through a proxy")
    if any(True for s in settings for _ in s.findall("./profiles/profile/repositories/repository")):
        return Sight(None, "its settings name repositories of their own")
    url = f"{_repository(settings).rstrip('/')}/{path}"
    credentials = any(True for s in settings for _ in s.iter("server"))
    return _ask(url, patience, credentials)


def user_home() -> Path:
    """The user's home directory.

    Raises:
        Missing: There is none: `HOME` is not set, and the system does not know the user.
    """
    try:
        return Path.home()
    except RuntimeError:
        raise Missing("this user has no home directory", remedy="Set HOME to one.") from None


def _ask(url: str, patience: float, credentials: bool) -> Sight:
    try:
        request = urllib.request.Request(url, method="HEAD")
        # Without the environment's proxies, of which Maven knows nothing.
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=patience):
            return Sight(True, url)
    except urllib.error.HTTPError as error:
        return Sight(None if credentials and error.code in _MAY_NOT else False, f"{url}: {error}")
    except urllib.error.URLError as error:
        return Sight(False, f"{url}: {error.reason}")
    except (OSError, ValueError) as error:
        return Sight(False, f"{url}: {error}")


def _settings(maven: Path) -> Iterator[ElementTree.Element]:
    """The user's, then those of the installation. Raises: OSError, ParseError."""
    for path in (
        user_home() / ".m2" / "settings.xml",
        maven.resolve().parent.parent / "conf" / "settings.xml",
    ):
        if path.is_file():
            root = ElementTree.fromstring(path.read_bytes())
            for element in root.iter():
                element.tag = element.tag.rpartition("}")[2]
            yield root


def _texts(settings: list[ElementTree.Element], tag: str) -> Iterator[str]:
    for root in settings:
        text = root.findtext(tag, "").strip().replace("${user.home}", str(user_home()))
        if text:
            yield text


def _repository(settings: list[ElementTree.Element]) -> str:
    """Where it looks in place of Maven Central: a mirror for just that, else the first one for it and others."""
    mirrors = [
        (m.findtext("mirrorOf", "").strip(), m.findtext("url", "").strip())
        for s in settings
        for m in s.iter("mirror")
    ]
    for of, url in mirrors:
        if of == "central":
            return url
    for of, url in mirrors:
        names = {name.strip() for name in of.split(",")}
        if "!central" not in names and names & {"*", "central", "external:*"}:
            return url
    return _CENTRAL

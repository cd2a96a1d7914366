"""The Python package index as pip on this machine is set up to reach it.

Which index, which certificates and which proxy come from pip's own configuration (file, PIP_* variables) and
from the usual environment; nothing is named here. Used by fetch_model.py.
"""

import base64
import html.parser
import json
import os
import re
import ssl
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request

ACCEPT = ("application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, "
          "text/html;q=0.01")


class FetchError(Exception):
    """A fault for the user to read: one line."""


def _pip_config_list():
    if os.environ.get("PIP_CONFIG_FILE") == os.devnull:  # pip: no configuration file counts
        return ""
    command = [sys.executable, "-m", "pip", "config", "list"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def pip_settings():
    """What `pip config list` says, as {"index-url": ..., "cert": ...}: the environment wins over `install`,
    which wins over `global`, as in pip."""
    found = {}
    for line in _pip_config_list().splitlines():
        match = re.match(r"(global|install|:env:)\.([a-z-]+)=(.*)$", line)
        if match:
            found[match[1], match[2]] = match[3].strip("'\"")
    settings = {}
    for scope in ("global", "install", ":env:"):  # an empty value counts as none, as in pip
        settings.update({key: value for (where, key), value in found.items() if where == scope and value})
    # Without pip the variables it would have read still count.
    for key in ("index-url", "extra-index-url", "cert", "proxy"):
        value = os.environ.get("PIP_" + key.upper().replace("-", "_"))
        if value:
            settings[key] = value
    return settings


def default_index():
    """pip's own default index."""
    try:
        from pip._internal.models.index import PyPI
    except ImportError:
        raise FetchError("package index: expected PIP_INDEX_URL or an installed pip to name one, found neither")
    return PyPI.simple_url


def normalise(name):
    return re.sub(r"[-_.]+", "-", name).lower()


class _Anchors(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.hrefs = []
        self.base = None

    def handle_starttag(self, tag, attrs):
        href = dict(attrs).get("href")
        if tag == "a" and href:
            self.hrefs.append(href)
        elif tag == "base" and href and self.base is None:
            self.base = href


def read_page(body, content_type, url):
    """The files of a project's page, JSON (PEP 691) or HTML (PEP 503): [(file name, url, sha256 or None)]."""
    if "json" in content_type:
        files = json.loads(body)["files"]
        return [(f["filename"], urllib.parse.urljoin(url, f["url"]), f.get("hashes", {}).get("sha256"))
                for f in files]
    page = _Anchors()
    page.feed(body.decode("utf-8", "replace"))
    base = urllib.parse.urljoin(url, page.base or "")
    files = []
    for href in page.hrefs:
        link, fragment = urllib.parse.urldefrag(urllib.parse.urljoin(base, href))
        name = urllib.parse.unquote(urllib.parse.urlsplit(link).path.rsplit("/", 1)[-1])
        digest = re.fullmatch(r"sha256=([0-9a-f]{64})", fragment)
        files.append((name, link, digest[1] if digest else None))
    return files


class Index:
    """Opens URLs of the configured index. `open` raises urllib's errors; `find_wheel` only FetchError."""

    def __init__(self):
        settings = pip_settings()
        urls = [settings.get("index-url") or default_index()]
        urls += re.split(r"\s+|\\n", settings.get("extra-index-url", "").strip())
        self.urls = [url for url in urls if url]
        self.timeout = float(os.environ.get("BALLAST_FETCH_TIMEOUT", "30"))
        cafile = (settings.get("cert") or os.environ.get("REQUESTS_CA_BUNDLE") or
                  os.environ.get("CURL_CA_BUNDLE") or None)
        try:
            # Without a file of ours OpenSSL itself honours SSL_CERT_FILE and SSL_CERT_DIR.
            folder = cafile is not None and os.path.isdir(cafile)
            context = ssl.create_default_context(cafile=None if folder else cafile,
                                                 capath=cafile if folder else None)
        except OSError as error:
            raise FetchError(f"certificates {cafile}: expected a readable file, found {error.strerror or error}")
        proxy = settings.get("proxy")
        handlers = [urllib.request.HTTPSHandler(context=context)]
        if proxy:
            handlers.append(urllib.request.ProxyHandler({"http": proxy, "https": proxy}))
        self._opener = urllib.request.build_opener(*handlers)  # adds the environment's proxies by itself

    def _credentials(self, host):
        """(user, password) that the configuration gives for this host, if any."""
        for url in self.urls:
            parts = urllib.parse.urlsplit(url)
            if parts.username is not None and parts.netloc.rsplit("@", 1)[-1] == host:
                return urllib.parse.unquote(parts.username), urllib.parse.unquote(parts.password or "")
        return None

    def open(self, url, headers):
        parts = urllib.parse.urlsplit(url)
        host = parts.netloc.rsplit("@", 1)[-1]
        request = urllib.request.Request(parts._replace(netloc=host).geturl(), headers=headers)
        login = self._credentials(host)
        if login:
            token = base64.b64encode(":".join(login).encode()).decode()
            # Unredirected: another host must not be shown the password.
            request.add_unredirected_header("Authorization", "Basic " + token)
        return self._opener.open(request, timeout=self.timeout)

    def find_wheel(self, package, version, sha256):
        """(file name, url) of the wheel of this version with this sha256."""
        prefix = normalise(package).replace("-", "_") + "-" + version + "-"
        offered = []
        for index in self.urls:
            try:
                with self.open(index.rstrip("/") + "/" + normalise(package) + "/", {"Accept": ACCEPT}) as page:
                    body, kind, url = page.read(), page.headers.get("Content-Type", ""), page.geturl()
            except urllib.error.HTTPError as error:
                if error.code in (403, 404) and index != self.urls[-1]:
                    continue
                raise FetchError(f"package {package}: expected the index to list it, found {explain(error)}")
            except (OSError, ValueError) as error:
                raise FetchError(f"package index: expected an answer, found {explain(error)}; "
                                 "check the network, PIP_INDEX_URL and the proxy, then run again to continue")
            try:
                files = read_page(body, kind, url)
            except (ValueError, KeyError, TypeError, AttributeError):
                raise FetchError(f"package {package}: expected a PEP 503 or 691 page, found {len(body)} bytes of "
                                 f"{kind or 'no type'}")
            for name, link, digest in files:
                if name.lower().startswith(prefix) and name.endswith(".whl"):
                    if digest in (None, sha256):
                        return name, link
                    offered.append(digest)
        found = f"sha256 {offered[0]}" if offered else "no such wheel"
        raise FetchError(f"package {package} {version}: expected a wheel with sha256 {sha256}, found {found}")


def explain(error):
    """A network error in a few words, without a URL that might carry a password."""
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP {error.code} {error.reason}"
    reason = getattr(error, "reason", error)
    if isinstance(reason, ssl.SSLCertVerificationError):
        return f"a certificate that does not verify ({reason.verify_message})"
    if isinstance(reason, TimeoutError):
        return "a time-out"
    text = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
    return " ".join(str(text).split())

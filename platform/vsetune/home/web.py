"""Whether anything answers at a web address, asked as clients built on `requests` ask: through the proxy that
HTTP_PROXY, HTTPS_PROXY and NO_PROXY name, with the certificates that they accept."""

from __future__ import annotations

import ssl
from http import HTTPStatus

import requests
from requests.utils import get_environ_proxies, select_proxy

from vsetune.errors import one_line
from vsetune.home.addresses import masked

_OF_PROXIES = {407, 502, 503, 504}
"""Answers of a proxy that does not reach the address, or does not let us through."""


def proxy_of(url: str) -> str | None:
    """The proxy through which requests to an address go, without any password; None if they go there directly."""
    proxy = select_proxy(url, get_environ_proxies(url))
    return None if proxy is None else masked(one_line(proxy))


def require_web(url: str, *, within_s: float, verify: bool | str = True, certificate: str | None = None) -> None:
    """ssl.SSLError, with the reason, where a certificate is not accepted; any other OSError where
    nothing answers. verify, certificate: as `requests` takes them."""
    proxy = proxy_of(url)
    way = "" if proxy is None else f"through the proxy {proxy}: "
    try:
        answer = requests.head(url, timeout=within_s, verify=verify, cert=certificate, allow_redirects=False)
    except requests.ReadTimeout:  # something listens, and is slow
        return
    except OSError as error:  # those of requests are such
        reason = _cause_of(error)
        is_refused = isinstance(error, requests.exceptions.SSLError) and "certificate" in reason.lower()
        raise (ssl.SSLError if is_refused else ConnectionError)(way + reason) from error
    if proxy is not None and answer.status_code in _OF_PROXIES:
        raise ConnectionError(f"{way}{answer.status_code} {HTTPStatus(answer.status_code).phrase}")


def _cause_of(error: BaseException) -> str:
    """The reason that the system or OpenSSL gave, without the layers that passed it on."""
    text, layers = str(error), [error]
    for layer in layers:
        text = getattr(layer, "verify_message", None) or getattr(layer, "strerror", None) or text
        inner = (layer.__cause__, layer.__context__, getattr(layer, "reason", None), *layer.args)
        layers += [each for each in inner if isinstance(each, BaseException) and each not in layers][:1]
    return masked(one_line(text))

"""What a storage said when it failed: its cause in one line, without secrets, and what helps."""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["cause_of", "is_from_store", "remedy_of", "without_secrets"]

HIDDEN = "***"
_MOST = 400
_LAYOUT = re.compile("\x1b\\[[0-9;]*m|↳")
_SCHEMES = re.compile(r"\. Known schemes: [^\n]*")
_XML = re.compile(r"<\?xml.*|<html.*", re.DOTALL | re.IGNORECASE)
_DEBUG = re.compile(r"\n\nDebug source:.*", re.DOTALL)  # obstore's
_XML_CODE = re.compile(r"<Code>([A-Za-z0-9]{1,80})</Code>")
_OF_HARMLESS_NAMES = re.compile(
    r"(?i)endpoint|url$|region|allow|bucket|account_name|container|timeout|retr|durable|emulator|^conditional_put$"
)
_SHORTEST = 4
# Signatures and tokens in addresses: S3's presigned requests and Azure's shared access signatures.
_IN_QUERY = re.compile(r"(?i)\b(sig|signature|token|x-amz-[a-z-]+|awsaccesskeyid|se|sp|sv|skoid|sktid)=[^&\s'\"<>]*")
_USER_INFO = re.compile(r"(?i)([a-z][a-z0-9+.-]*://[^/\s:@]*):[^/\s@]*@")

_FROM_STORE = re.compile(r"Generic \w+ error|Error performing|necessary privileges|Unauthenticated")
_NO_CREDENTIALS = re.compile(
    r"(?i)169\.254\.|metadata|missing\s*(secret|access)|no\s*credentials|invalid_client|failed to get token|imds"
)
_REFUSED_CREDENTIALS = re.compile(
    r"(?i)privileges|permission denied|40[13] |unauthori[sz]ed|forbidden|invalidaccesskeyid|signaturedoesnotmatch|expiredtoken"
)
_CREDENTIALS = (
    "S3 needs AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN, if they are temporary), Azure needs "
    "AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_KEY. Give them as storage options, in Spark as storage.NAME, or in the "
    "environment of the driver and of every executor, or give these machines a role."
)


def without_secrets(text: str, options: Mapping[str, str] | None = None) -> str:
    """Return ``text`` without the values of storage options, signatures in queries, and passwords in URLs.

    >>> without_secrets("GET https://a.example/c?sv=1&sig=abc with hunter2", {"AZURE_STORAGE_ACCOUNT_KEY": "hunter2"})
    'GET https://a.example/c?sv=***&sig=*** with ***'
    """
    # The longest first: a secret may begin with the value of another option.
    for name, value in sorted((options or {}).items(), key=lambda option: -len(str(option[1]))):
        if len(str(value)) >= _SHORTEST and not _OF_HARMLESS_NAMES.search(name):
            text = text.replace(str(value), HIDDEN)
    text = _IN_QUERY.sub(lambda found: f"{found.group(1)}={HIDDEN}", text)
    return _USER_INFO.sub(rf"\1:{HIDDEN}@", text)


def cause_of(error: BaseException, options: Mapping[str, str] | None = None) -> str:
    """Return the error's cause in one line, without secrets.

    deltalake's errors have a line for each level, and the last ones name the cause.

    >>> cause_of(OSError("Generic S3 error\\n  ↳ GET http://x\\n  ↳ 404 Not Found\\n <?xml ?><Code>NoSuchBucket</Code>"))
    'Generic S3 error: GET http://x: 404 Not Found: NoSuchBucket'
    """
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    text = _DEBUG.sub("", text)
    code = _XML_CODE.search(text)
    text = _XML.sub(code.group(1) if code else "", _SCHEMES.sub("", _LAYOUT.sub("", text)))
    lines = [line for line in (" ".join(line.split()).rstrip(".") for line in text.splitlines()) if line]
    return without_secrets(": ".join(lines), options)[:_MOST]


def is_from_store(error: BaseException) -> bool:
    """Whether an object store failed, and not what was read from it.

    >>> is_from_store(OSError("Generic S3 error")), is_from_store(OSError("Parquet magic bytes not found"))
    (True, False)
    """
    return _FROM_STORE.search(str(error)) is not None


def remedy_of(cause: str, location: str) -> str | None:
    """Return what helps for a cause that an object store named, or ``None`` if that is not known."""
    if "://" not in location:
        return None
    if _NO_CREDENTIALS.search(cause):
        return f"No complete credentials were found. {_CREDENTIALS}"
    if _REFUSED_CREDENTIALS.search(cause):
        return f"The store refuses these credentials, or gives them no right to do this. {_CREDENTIALS}"
    if "URL scheme is not allowed" in cause:
        return "The endpoint is http and not https: set AWS_ALLOW_HTTP or AZURE_ALLOW_HTTP to true if this is meant."
    if "NoSuchBucket" in cause or "ContainerNotFound" in cause:
        return "Create the bucket or container, or correct the path and the endpoint (AWS_ENDPOINT_URL, AZURE_ENDPOINT)."
    return None

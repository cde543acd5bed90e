"""What a storage said when it failed: its cause in one line, without secrets.

Also the door to deltalake and obstore (:func:`native`): what a panic and a fork of the process do there gets a name.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from typing import Any
from urllib.parse import quote

from strandline.delta import errors

__all__ = ["cause_of", "is_from_store", "meant", "native", "shown_json", "without_secret_options", "without_secrets"]

HIDDEN = "***"
_MOST = 400
_LAYOUT = re.compile("\x1b\\[[0-9;]*m|↳")
_SCHEMES = re.compile(r"\. Known schemes: [^\n]*")
_XML = re.compile(r"<\?xml.*|<html.*", re.DOTALL | re.IGNORECASE)
_DEBUG = re.compile(r"\n\nDebug source:.*", re.DOTALL)  # obstore's
_XML_CODE = re.compile(r"<Code>([A-Za-z0-9]{1,80})</Code>")
_SHOWN = (
    "account_name|allow_http|allow_invalid_certificates|bucket|bucket_name|checksum_algorithm|conditional_put|"
    "connect_timeout|container|container_name|copy_if_not_exists|default_region|durable|ec2_metadata_disabled|"
    "endpoint|endpoint_url|endpoint_url_dynamodb|endpoint_url_s3|imdsv1_fallback|max_retries|metadata_endpoint|"
    "region|request_payer|retry_timeout|s3_allow_unsafe_rename|s3_express|s3_locking_provider|skip_signature|"
    "timeout|unsigned_payload|use_emulator|use_fabric_endpoint|virtual_hosted_style_request"
)
"""Names of options whose values are shown. All other values are hidden."""
_PREFIX = r"(?i)(aws_|azure_storage_|azure_|google_)?"
_HARMLESS = re.compile(rf"{_PREFIX}({_SHOWN})")
_SECRETS = (
    "access_key_id|secret_access_key|session_token|token|account_key|access_key|sas_key|sas_token|client_id|client_secret|tenant_id|"
    "authority_id|bearer_token|service_account|service_account_key|service_account_path|application_credentials|proxy_url"
)
_SHORTEST = 4
# Signatures and tokens in addresses: S3's presigned requests and Azure's shared access signatures.
_IN_QUERY = re.compile(r"(?i)\b(sig|signature|token|x-amz-[a-z-]+|awsaccesskeyid|se|sp|sv|skoid|sktid)=[^&\s'\"<>]*")
_USER_INFO = re.compile(r"(?i)([a-z][a-z0-9+.-]*://[^/\s:@]*):[^/\s@]*@")

_FROM_STORE = re.compile(r"Generic \w+ error|Error performing|necessary privileges|Unauthenticated")


def without_secrets(text: str, options: Mapping[str, str] | None = None) -> str:
    """Return ``text`` without the values of storage options, signatures in queries, and passwords in URLs.

    >>> without_secrets("GET https://a.example/c?sv=1&sig=abc with hunter2", {"AZURE_STORAGE_ACCOUNT_KEY": "hunter2"})
    'GET https://a.example/c?sv=***&sig=*** with ***'
    """
    # The longest first: a secret may begin with the value of another option.
    for secret in sorted(
        {form for value in _hidden(options or {}) for form in _forms(value)}, key=lambda form: (-len(form), form)
    ):
        text = text.replace(secret, HIDDEN)
    text = _IN_QUERY.sub(lambda found: f"{found.group(1)}={HIDDEN}", text)
    return _USER_INFO.sub(rf"\1:{HIDDEN}@", text)


def shown_json(text: str) -> str:
    """Return an option that ought to be JSON without the texts in objects, but for those whose names are known to be harmless.

    >>> shown_json('{"out": ["s3://b/x", "row"], "more": {"AWS_SECRET_ACCESS_KEY": "hunter2", "AWS_REGION": "eu"}}')
    '{"out": ["s3://b/x", "row"], "more": {"AWS_SECRET_ACCESS_KEY": "***", "AWS_REGION": "eu"}}'
    >>> shown_json('{"out": "hunter2", ')
    '{…'
    """
    try:
        return without_secrets(json.dumps(_without_texts(json.loads(text))))
    except (ValueError, RecursionError):
        return f"{text.lstrip()[:1]}…"


def _without_texts(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_texts(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    return {
        name: HIDDEN if not isinstance(inner, dict | list | bool | None) and not _is_harmless(name) else _without_texts(inner)
        for name, inner in value.items()
    }


def without_secret_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options whose names are known to be harmless, and whose values have no secret in them.

    >>> without_secret_options({"AWS_REGION": "eu", "AWS_SECRET_ACCESS_KEY": "hunter2", "endpoint": "https://me:hunter2@a"})
    {'AWS_REGION': 'eu'}
    """
    return {name: value for name, value in options.items() if _is_harmless(name) and without_secrets(value) == value}


def _is_harmless(name: str) -> bool:
    return _HARMLESS.fullmatch(name) is not None


def meant(name: str) -> str | None:
    """Return the name of an option that a misspelt one resembles, or ``None``, if it resembles none or is itself one.

    >>> meant("AWS_REGIN"), meant("azure_storage_acount_key"), meant("AWS_REGION"), meant("AWS_S3_ROLE_SESSION_NAME")
    ('AWS_REGION', 'azure_storage_account_key', None, None)
    """
    names = [*_SHOWN.split("|"), *_SECRETS.split("|")]
    prefix = re.match(_PREFIX, name)
    start = prefix.end() if prefix else 0
    bare = name[start:].lower()
    close = [] if bare in names else get_close_matches(bare, names, 1, 0.9)
    return name[:start] + (close[0].upper() if name.isupper() else close[0]) if close else None


def _hidden(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield the values that must not be shown, also those within values that are JSON, such as a service account's key."""
    for name, value in options.items():
        if isinstance(value, dict):
            yield from _hidden(value)
        elif isinstance(value, list):
            yield from _hidden({f"{name}.{at}": inner for at, inner in enumerate(value)})
        elif not _is_harmless(str(name)):
            yield str(value)
            if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
                with suppress(ValueError, RecursionError):
                    yield from _hidden({str(name): json.loads(value)})


def _forms(secret: str) -> Iterator[str]:
    """Yield a secret as errors may show it: as it is, as it is in JSON or Rust, and in an address."""
    if len(secret) >= _SHORTEST:
        yield secret
        yield json.dumps(secret)[1:-1]
        yield json.dumps(secret, ensure_ascii=False)[1:-1]
        yield quote(secret, safe="")
        yield quote(secret)


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


_process: int | None = None
"""The process that first came through the door."""


@contextmanager
def native(location: str, options: Mapping[str, str] | None = None, *, threads: bool = True) -> Iterator[None]:
    """Call deltalake or obstore within this block, and nothing of theirs elsewhere.

    Their threads do the work. A fork of the process has none of them, so a call there would panic, or wait for ever.

    Args:
        location: What is opened, read or written, for the error.
        options: Its storage options. The error shows no secret of them.
        threads: Whether the calls need these threads.

    Raises:
        StorageError: ``STRANDLINE_PROCESS_FORKED``, or ``STRANDLINE_DELTALAKE_PANIC``. A panic is no ``Exception`` in Python.
    """
    global _process
    if threads:
        if _process is None:
            _process = os.getpid()
        if _process != os.getpid():
            raise errors.process_forked(without_secrets(location))
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # deltalake and obstore have one each, which nobody can import
            raise
        if "Forked process detected" in str(error):  # somebody else had used deltalake before
            raise errors.process_forked(without_secrets(location)) from None
        raise errors.deltalake_panic(without_secrets(location), cause_of(error, options)) from None

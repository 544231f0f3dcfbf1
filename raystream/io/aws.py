"""What Kinesis and SQS share: regions, and errors of boto3 in words."""

from __future__ import annotations

import re
from typing import Any

from raystream.errors import ConfigError

_LOGINS = frozenset({
    "UnrecognizedClientException", "InvalidClientTokenId", "InvalidSignatureException",
    "SignatureDoesNotMatch", "MissingAuthenticationToken", "ExpiredToken", "ExpiredTokenException",
    "AccessDenied", "AccessDeniedException", "IncompleteSignature", "OptInRequired",
})  # fmt: skip
"""What a server says that does not let somebody in."""
_FOREVER = (
    "NoRegionError", "InvalidRegionError", "NoCredentialsError", "PartialCredentialsError",
    "ProfileNotFound", "ConfigParseError", "ConfigNotFound",
)  # fmt: skip
"""Errors of boto3 before it asks anybody: of what it finds on this machine."""
_TOLD = re.compile(
    r"An error occurred \((.+?)\) when calling the \w+ operation(?: \([^)]*\))?: ?(.*)", re.DOTALL
)
"""What boto3 makes of an answer: its code and its words."""
_REGION = re.compile("[A-Za-z0-9-]{1,63}")


def check_region(call: str, region: Any) -> None:
    """Refuse what is no name of a region; None leaves it to boto3."""
    if region is not None and not (isinstance(region, str) and _REGION.fullmatch(region)):
        raise ConfigError(
            f"{call}(region={region!r:.80}): the name of a region", hint='As in "eu-central-1".'
        )


def code_of(error: BaseException) -> str:
    """The code with which a server has refused something; "" of an error of another kind."""
    found: dict[str, Any] = getattr(error, "response", None) or {}
    return str(found.get("Error", {}).get("Code", ""))


def is_final(error: BaseException) -> bool:
    """Whether it is of no use to ask again: the user or the settings of this machine are wrong."""
    return type(error).__name__ in _FOREVER or code_of(error) in _LOGINS


def words_of(error: BaseException) -> str:
    """What a server or boto3 says."""
    said = str(error).strip() or type(error).__name__
    told = _TOLD.fullmatch(said)
    return said if told is None else f"{told[2] or 'no reason'} ({told[1]})"


def advice_of(error: BaseException) -> str:
    """What to do about an error; nothing where that is not known."""
    kind = type(error).__name__
    if kind in ("NoRegionError", "InvalidRegionError"):
        return "region= names the region; AWS_DEFAULT_REGION does so for all."
    if kind in ("NoCredentialsError", "PartialCredentialsError") or code_of(error) in _LOGINS:
        return (
            "Look at the credentials that boto3 finds on the machines of the job (AWS_ACCESS_KEY_ID"
            " and AWS_SECRET_ACCESS_KEY, a profile, or a role), and at their rights."
        )
    if kind in ("ProfileNotFound", "ConfigParseError", "ConfigNotFound"):
        return "Look at AWS_PROFILE and the files in ~/.aws on the machines of the job."
    if isinstance(error, ValueError):  # before it asks anybody
        return "Look at AWS_ENDPOINT_URL and its likes, with http:// or https:// before the host."
    return ""

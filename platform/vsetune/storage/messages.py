"""The user-facing errors of files and object storage, by subject. Codes: VSE-O."""

from __future__ import annotations

from vsetune.errors import Message

# Addresses and paths

ADDRESS_UNKNOWN = Message("VSE-O001", "{url}: unknown kind of address, need a local path or s3://bucket/prefix.")
ADDRESS_INCOMPLETE = Message("VSE-O002", "{url}: need s3://bucket/prefix.")
ADDRESS_IMPOSSIBLE = Message("VSE-O003", "{url}: no possible address ({reason}); need s3://bucket/prefix.")
KEYS_IN_ADDRESS = Message(
    "VSE-O004", "{where}: keys do not belong in the address; need s3://bucket/prefix, and AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY, a profile or a role."
)
PASSWORD_MASKED = Message(
    "VSE-O005", "{where}: got {url}, whose password was masked when it was stored; use the study file it came "
    "from, or write ${{VARIABLE}} in place of {mask}"
)
PASSWORD_AMBIGUOUS = Message(
    "VSE-O006", "{where}: got {url}, whose password could end in two places; write @ / ? # and spaces in it as in "
    "URLs (@ is %40), or all of it as ${{VARIABLE}}"
)
VARIABLE_NOT_SET = Message("VSE-O007", "{where}: got {found}, which is not set in the environment; export {variable}")
HOME_ADDRESS = Message("VSE-O008", "{variable}: got {found!r}, need s3://bucket/prefix")
OUTSIDE_HOME = Message("VSE-O009", "{path}: is not in {home}, so it has no place in {remote}; need a relative folder")
NO_PATH = Message("VSE-O010", "got {found!r}, need a path")
PATH_WITH_NUL = Message("VSE-O011", "got {found!r} with a NUL character in it, need a path; remove it")
PATH_NOT_UTF8 = Message("VSE-O012", "got {found!r}, need a path in UTF-8")
PATH_TOO_LONG = Message(
    "VSE-O013", "got a path of {characters:,} characters ({start}...), need at most {most:,} bytes, {most_name} in "
    "each of its names"
)
PATH_NOT_LOCAL = Message(
    "VSE-O014", "got {found}, need a local or shared folder; results go to object storage by {variable}=s3://..."
)
NO_SUCH_USER = Message("VSE-O015", "{path}: no home folder of {user} on this machine; write the path in full")
NO_URI_TEXT = Message("VSE-O016", "need a URI, got one that is empty or has blanks in it")
NO_URI = Message("VSE-O017", "need a URI ({reason})")

# Files

FILE_UNREADABLE = Message("VSE-O018", "{file}: cannot be read ({reason}); check the disk and its rights, then resume.")
FILE_UNWRITABLE = Message(
    "VSE-O019", "{file}: cannot write {bytes:,} bytes ({reason}; {free}); free space or choose another folder, "
    "then repeat."
)
FOLDER_UNMADE = Message(
    "VSE-O020", "{folder}: cannot make this folder ({reason}); choose another place or fix its permissions."
)
FOLDER_IN_USE = Message(
    "VSE-O021", "{folder}: another process of this machine works in it ({reason}); repeat when it has ended"
)
JSON_UNREADABLE = Message("VSE-O022", "{file}: cannot read ({reason})")
COPY_UNWRITABLE = Message("VSE-O023", "{file}: cannot be written ({reason}); free space, or set VSETUNE_NODE_FOLDER")
COPY_DAMAGED = Message("VSE-O024", "{file}: the copy of {url} on this disk was damaged and is removed; start again.")
CACHE_SIZE = Message("VSE-O025", "{variable}: got {found}, need gigabytes such as 50; 0 reads from S3 every time")

# Objects

NO_ANSWER = Message("VSE-O026", "{url}: S3 does not answer ({reason}); check credentials, rights and endpoint.")
REFUSED = Message("VSE-O027", "{url}: {advice}.")
NO_BUCKET = Message("VSE-O028", "{url}: no such object, nor a bucket {bucket}; check name and endpoint.")
NO_OBJECT = Message("VSE-O029", "{url}: no such object; check bucket and prefix.")
OBJECT_TOO_LARGE = Message(
    "VSE-O030", "{url}: {bytes:,} bytes, need at most {most:,}; it is not the object that belongs there."
)
OBJECT_CHANGED = Message("VSE-O031", "{url}: is not what was written ({found:,} of {bytes:,} bytes, or its SHA-256).")
OBJECT_OF_ANOTHER_HASH = Message(
    "VSE-O032", "{url}: {reason}; half written, or changed since it was ingested: upload it again from the data "
    "set's folder, or ingest the data set again."
)
CONNECTION_BROKE = Message("VSE-O033", "{url}: connection broke while reading ({reason}); start again.")
CHANGED_MEANWHILE = Message("VSE-O034", "{url}: was changed while it was read; start again.")
WRITTEN_MEANWHILE = Message("VSE-O035", "{url}: another process has written it meanwhile ({code}).")
UPLOAD_FAILED = Message("VSE-O036", "{url}: cannot upload {file} ({reason}); check bucket, rights and endpoint.")
CONDITIONS_IGNORED = Message(
    "VSE-O037", "{url}: the server ignores conditional writes ({header}), so two drivers could not exclude each "
    "other; need one that knows If-Match and If-None-Match (AWS, seaweedfs, MinIO)."
)
WRITES_NOT_SHOWN = Message("VSE-O038", "{url}: written, and not there; need a server that shows what was written.")

# Mirrors and leases

NOT_SENT = Message("VSE-O039", "{url}: not sent within {within_s:g} s; check the network, then resume.")
TAKEN_OVER = Message("VSE-O040", "{url}: another process goes on with it; this process stops.")
CONTENTS_DAMAGED = Message(
    "VSE-O041", "{url}: damaged list of files ({reason}); bring back an older version of it, or remove {prefix} to "
    "start again"
)
PIECE_GONE = Message("VSE-O042", "{url}: gone, need {need:,} bytes; the file it belongs to is lost.")
PIECE_CHANGED = Message(
    "VSE-O043", "{url}: is not what was written ({found:,} of {need:,} bytes, or another SHA-256); it was damaged "
    "on the server, bring it back or start what it belongs to again."
)
LEASE_HELD = Message(
    "VSE-O044", "{name}: runs on {host} as process {pid}, last heartbeat {heard}; stop it there, or if that "
    "machine is gone, repeat when its heartbeat is {promised_s:.0f} s old"
)
LEASE_JUST_TAKEN = Message("VSE-O045", "{name}: another process has just started it; wait for it")
LEASE_LOST = Message("VSE-O046", "{name}: {host}, process {pid}, has taken it over; this process stops")
LEASE_REMOVED = Message("VSE-O047", "{url}: the lease was removed while it was used; start again")
LEASE_DAMAGED = Message("VSE-O048", "{url}: damaged lease ({reason}); remove it if nothing runs")

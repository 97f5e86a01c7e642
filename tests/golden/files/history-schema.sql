PRAGMA application_id = 1936747363;
PRAGMA user_version = 2;
PRAGMA journal_mode = wal;
CREATE TABLE operations (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL UNIQUE,
    parent TEXT,
    kind TEXT NOT NULL,
    began REAL NOT NULL,
    operator TEXT NOT NULL,
    host TEXT,
    pid INTEGER,
    nodes TEXT NOT NULL,
    profile TEXT,
    instance TEXT,
    hash TEXT,
    text TEXT,
    engine TEXT,
    image TEXT,
    alike TEXT,
    command TEXT,
    ended REAL,
    seconds REAL,
    outcome TEXT,
    exit_code INTEGER,
    why TEXT,
    hint TEXT,
    verdict TEXT,
    usual REAL,
    usual_parts TEXT,
    moments TEXT )
CREATE INDEX operations_of_hash ON operations (hash)
CREATE INDEX operations_of_profile ON operations (profile)
CREATE TABLE shares (
    operation INTEGER NOT NULL,
    node TEXT NOT NULL,
    instance TEXT NOT NULL,
    container TEXT,
    image_digest TEXT,
    driver TEXT,
    kernel TEXT,
    engine_version TEXT,
    available_before INTEGER,
    peak INTEGER,
    settled INTEGER,
    estimated INTEGER,
    available_after INTEGER,
    freed INTEGER,
    missing INTEGER,
    seconds REAL,
    cause TEXT,
    has_joined INTEGER,
    parts TEXT,
    accept_length REAL,
    tokens_per_second REAL,
    receipt TEXT,
    log TEXT,
    told INTEGER,
    told_at REAL,
    received INTEGER,
    PRIMARY KEY (operation,
    node,
    instance) )
CREATE INDEX shares_of_container ON shares (container)
CREATE INDEX shares_told ON shares (told)
CREATE TABLE sqlite_sequence(name,seq)
CREATE TABLE taken_over (content TEXT PRIMARY KEY,
    at REAL NOT NULL)

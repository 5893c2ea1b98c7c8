-- A store as version 1 of the tables had it, with one run. Never to be written anew.
PRAGMA journal_mode = WAL;
PRAGMA application_id = 1416782956;
PRAGMA user_version = 1;
CREATE TABLE runs (
    id INTEGER PRIMARY KEY,
    run TEXT NOT NULL UNIQUE,
    status TEXT NOT NULL,
    started_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    entries INTEGER NOT NULL,
    model TEXT NOT NULL,
    title TEXT NOT NULL,
    tenant TEXT,
    parent TEXT
  ) STRICT;
CREATE INDEX runs_by_status ON runs (status, started_at);
CREATE INDEX runs_by_tenant ON runs (tenant, status, started_at) WHERE tenant IS NOT NULL;
CREATE INDEX runs_by_parent ON runs (parent, status, started_at) WHERE parent IS NOT NULL;
CREATE INDEX runs_ended ON runs (updated_at) WHERE status NOT IN ('running', 'paused');
CREATE TABLE entries (
    run INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    entry TEXT NOT NULL,
    sum INTEGER NOT NULL,
    PRIMARY KEY (run, seq)
  ) STRICT;
CREATE TABLE snapshots (
    run INTEGER PRIMARY KEY,
    seq INTEGER NOT NULL,
    state TEXT NOT NULL,
    sum INTEGER NOT NULL
  ) STRICT;
CREATE TABLE leases (
    token INTEGER PRIMARY KEY AUTOINCREMENT,
    run TEXT NOT NULL UNIQUE,
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    process_start TEXT,
    since REAL NOT NULL,
    expires_at REAL NOT NULL
  ) STRICT;
CREATE TABLE blobs (
    id INTEGER PRIMARY KEY,
    digest TEXT NOT NULL UNIQUE,
    length INTEGER NOT NULL
  ) STRICT;
CREATE TABLE blob_parts (
    blob INTEGER NOT NULL,
    part INTEGER NOT NULL,
    content ANY NOT NULL,
    PRIMARY KEY (blob, part)
  ) STRICT;
CREATE TABLE blob_runs (
    run INTEGER NOT NULL,
    blob INTEGER NOT NULL,
    PRIMARY KEY (run, blob)
  ) STRICT, WITHOUT ROWID;
CREATE INDEX blob_runs_by_blob ON blob_runs (blob);
INSERT INTO runs (id, run, status, started_at, updated_at, entries, model, title, tenant, parent) VALUES (1, 'a', 'completed', 1000, 1001, 2, 'scripted', 'How many?', NULL, NULL);
INSERT INTO entries (run, seq, entry, sum) VALUES (1, 0, '{"v":1,"seq":0,"event":{"type":"run-started","at":1000,"runId":"a","rules":{"wording":1,"finish":"plain","maxTurns":20,"maxParallel":5,"parallel":true,"errorLimit":3,"repeatLimit":3,"maxResultChars":15000,"toolTimeoutMs":60000,"limits":{},"closingTurn":false,"toolChoice":"auto","judged":false},"tools":[],"model":"scripted","settings":{},"input":[{"role":"user","content":[{"type":"text","text":"How many?"}]}]},"issued":["t1.model.0"],"digest":3378313335}', 4039973325);
INSERT INTO entries (run, seq, entry, sum) VALUES (1, 1, '{"v":1,"seq":1,"event":{"type":"model-replied","at":1001,"effect":"t1.model.0","content":[{"type":"text","text":"Four."}],"finish":"stop","usage":{"inputTokens":10,"outputTokens":5,"cost":0},"model":"scripted","checks":[]},"issued":[],"digest":2207253521,"status":"completed"}', 4287664572);
INSERT INTO snapshots (run, seq, state, sum) VALUES (1, 1, '{"turn":1}', 2091431164);
INSERT INTO blobs (id, digest, length) VALUES (1, '86f347d756679001ca5ce6debb6fd0851670c3b513f66d7bfb26a496b84a6f10', 11);
INSERT INTO blob_parts (blob, part, content) VALUES (1, 0, 'a long text');
INSERT INTO blob_runs (run, blob) VALUES (1, 1);

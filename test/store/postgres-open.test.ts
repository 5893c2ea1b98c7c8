import { randomUUID } from 'node:crypto';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, test } from 'vitest';
import { command } from '../command/in-process.ts';
import { startPostgres, withClient } from './postgres-server.ts';
import { testDatabase } from './shared-postgres.ts';
import { openStore, postgresStore } from '@treadle/store';

test('opens the database that a URL names, and several processes create its tables once', async () => {
  await using database = await testDatabase();
  await withClient(database.url, (client) => client.query('DROP SCHEMA treadle CASCADE'));
  const stores = await Promise.all(Array.from({ length: 4 }, () => openStore(database.url)));
  expect(await stores[0]!.list()).toEqual([]);
  await Promise.all(stores.map((store) => store.close()));
  const { rows } = await withClient(database.url, (client) => client.query('SELECT version FROM treadle.store'));
  expect(rows).toEqual([{ version: expect.any(Number) }]);
});

test('uses two connections more than it may at most: one to renew leases, and one to be told of changes', async () => {
  await using database = await testDatabase();
  const store = await database.open({ connections: 3 });
  store.watchRuns(() => {});
  const leases = await Promise.all(Array.from({ length: 20 }, (_, index) => store.acquire(`run ${index}`)));
  await Promise.all(leases.map(({ runId }) => store.isDriven(runId)));
  await withClient(database.url, async (client) => {
    await expect
      .poll(async () => {
        const { rows } = await client.query(
          `SELECT count(*)::integer AS open FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'treadle'`,
        );
        return rows;
      })
      .toEqual([{ open: 5 }]);
  });
});

test('refuses a store of a newer version', async () => {
  await using database = await testDatabase();
  await withClient(database.url, (client) => client.query('UPDATE treadle.store SET version = version + 1'));
  await expect(openStore(database.url)).rejects.toMatchObject({ code: 'store-newer' });
});

test('refuses a database whose encoding cannot represent every text', async () => {
  await using database = await testDatabase();
  const name = `latin_${process.pid}`;
  await withClient(database.url, (client) =>
    client.query(`CREATE DATABASE ${name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0`),
  );
  try {
    await expect(openStore(new URL(`/${name}`, database.url).href)).rejects.toMatchObject({
      code: 'store-failed',
      message: expect.stringMatching(/the encoding LATIN1.*Create a database with UTF8: "createdb -E UTF8/),
    });
  } finally {
    await withClient(database.url, (client) => client.query(`DROP DATABASE ${name} WITH (FORCE)`));
  }
});

test('says what is wrong with an address, without the password', async () => {
  await using database = await testDatabase();
  const failure = async (change: (url: URL) => void): Promise<string> => {
    const url = new URL(database.url);
    change(url);
    return openStore(url.href).then(
      () => 'opened',
      (error: Error) => error.message,
    );
  };
  const texts = [
    await failure((url) => (url.port = '1')),
    await failure((url) => (url.pathname = `/${randomUUID()}`)),
    await failure((url) => (url.username = 'nobody_known')),
  ];
  expect(texts[0]).toMatch(
    /^The store postgres:\/\/treadle@127\.0\.0\.1:1\/.* cannot be reached: .*Check that PostgreSQL runs there/,
  );
  expect(texts[1]).toMatch(/cannot be opened: database ".*" does not exist\. Create the database/);
  expect(texts[2]).toMatch(/cannot be opened: role "nobody_known" does not exist\. Check user and password\./);
  for (const text of texts) expect(text).not.toContain('secret');
  await expect(openStore('postgres://user:secret@host:port/db')).rejects.toThrow(/must be postgres:\/\/USER:PASSWORD@/);
});

test('says what is missing if the user may not create a schema', async () => {
  await using database = await testDatabase();
  const name = `guest_${process.pid}`;
  await withClient(database.url, async (client) => {
    await client.query('DROP SCHEMA treadle CASCADE');
    await client.query(`CREATE ROLE ${name} LOGIN PASSWORD 'secret'`);
  });
  const url = new URL(database.url);
  url.username = name;
  await expect(openStore(url.href)).rejects.toMatchObject({
    code: 'store-read-only',
    message: expect.stringContaining('CREATE SCHEMA treadle AUTHORIZATION'),
  });
  // The schema of another user.
  await (await openStore(database.url)).close();
  await expect(openStore(url.href)).rejects.toMatchObject({
    code: 'store-read-only',
    message: expect.stringMatching(
      /permission denied for schema treadle\. Connect as the user that owns the schema treadle/,
    ),
  });
  await withClient(database.url, (client) => client.query('DROP SCHEMA treadle CASCADE'));
  await withClient(database.url, (client) => client.query(`CREATE SCHEMA treadle AUTHORIZATION ${name}`));
  const store = await openStore(url.href);
  expect(await store.list()).toEqual([]);
  await store.close();
  await withClient(database.url, (client) => client.query(`DROP SCHEMA treadle CASCADE; DROP ROLE ${name}`));
});

test('says what is missing for a password and for encryption', async () => {
  const folder = mkdtempSync(path.join(tmpdir(), 'treadle-access-'));
  chmodSync(folder, 0o755);
  const access = path.join(folder, 'pg_hba.conf');
  writeFileSync(access, 'host all treadle 127.0.0.1/32 scram-sha-256\n', { mode: 0o644 });
  try {
    await using server = await startPostgres({ settings: [`hba_file=${access}`] });
    const failure = async (change: (url: URL) => void): Promise<string> => {
      const url = new URL(server.url());
      change(url);
      return openStore(url.href).then(
        () => 'opened',
        ({ message }: Error) => message.replace(/^The store postgres:\/\/\w+@127\.0\.0\.1:\d+\/postgres /, ''),
      );
    };
    expect(await failure(() => {})).toMatch(
      /^cannot be opened: password authentication failed .*\. Check user and password\.$/,
    );
    expect(await failure((url) => (url.password = ''))).toBe(
      'cannot be opened: the server asks for a password. Put it into the URL, or into the environment variable PGPASSWORD.',
    );
    expect(await failure((url) => (url.username = 'other'))).toMatch(
      /no pg_hba\.conf entry .*\. Let this user in with a line of pg_hba\.conf, or encrypt the connection: \?sslmode=verify-full\.$/,
    );
    expect(await failure((url) => (url.search = '?sslmode=verify-full'))).toBe(
      'cannot be opened: the server accepts no encrypted connections. Turn on ssl in its postgresql.conf, or remove sslmode from the URL.',
    );
    expect(await failure((url) => (url.search = '?sslrootcert=/does/not/exist.pem'))).toMatch(
      /^cannot be opened: ENOENT.*'\/does\/not\/exist\.pem'. Correct the path in the URL, and let this user read the file\.$/,
    );
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test('doctor says what is wrong with the database', async () => {
  await using database = await testDatabase();
  const folder = mkdtempSync(path.join(tmpdir(), 'treadle-doctor-'));
  try {
    const { stdout } = await command(['doctor', '--no-test', '--store', `${database.url}_missing`], folder);
    const line = /^.*store: .*$/m.exec(stdout)![0];
    expect(line).toMatch(/^FAIL +store: The store postgres:.* cannot be opened: database ".*" does not exist\. /);
    expect(stdout).not.toContain('secret');
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test('rejects what is no URL of PostgreSQL, and options that do not exist', async () => {
  await expect(postgresStore('sqlite:x')).rejects.toMatchObject({ code: 'invalid-options' });
  await expect(postgresStore('postgres://h/d', { ttl: 1 } as object)).rejects.toMatchObject({
    code: 'invalid-options',
  });
});

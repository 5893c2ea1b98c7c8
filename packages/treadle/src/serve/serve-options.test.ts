import type { Tool } from '@treadle/core';
import { describe, expect, test } from 'vitest';
import { CommandError } from '../command-line/command.ts';
import { parseConfig } from '../config/load.ts';
import { local, readOnlyTools } from '@treadle/tools';
import { serveOptions, type AddressFlags, type ServeOptions } from './serve-options.ts';

const HASH = `sha256:${'ab'.repeat(32)}`;
const TOOLS = readOnlyTools(local('.'));

const SECRET = 'a secret of 20 chars';

const options = (toml: string, flags: AddressFlags = {}, tools: readonly Tool[] = TOOLS): ServeOptions =>
  serveOptions(
    flags,
    { config: parseConfig(toml, 'treadle.toml'), file: 'treadle.toml', named: false },
    { tools, env: { HOOK: SECRET, SHORT: 'x' } },
  );

test('sets only the tools without a configuration', () => {
  expect(options('')).toEqual({ tools: TOOLS });
});

test('sets all options of the configuration', () => {
  const toml = `
[server]
host = "::1"
port = 1
cors_origins = ["https://a.example"]
requests_per_minute = 2
max_concurrent_runs = 3
max_open_streams = 30
default_tools = ["read", "grep"]
instructions = "Be brief."
requires_action_status = false
max_body_bytes = 4
max_bytes_in_progress = 40
max_duration_ms = 5
heartbeat_ms = 6
send_timeout_ms = 60
wait_for_answers = true
chat_titles = false
[server.webhooks]
url = "https://example.com/hook"
secret_env = "HOOK"
events = ["run.waiting"]
allow_private = true
[[server.keys]]
name = "a"
hash = "${HASH}"
scopes = ["tools:execute"]
tenant = "t"
requests_per_minute = 7
[[server.keys]]
name = "b"
hash = "${HASH.replace('ab', 'cd')}"
[orchestrator]
max_tool_iterations = 8
default_tool_timeout_ms = 9
`;
  expect(options(toml)).toEqual({
    tools: TOOLS,
    host: '::1',
    port: 1,
    keys: [
      { name: 'a', hash: HASH, scopes: ['tools:execute'], tenant: 't', requestsPerMinute: 7 },
      { name: 'b', hash: HASH.replace('ab', 'cd') },
    ],
    corsOrigins: ['https://a.example'],
    requestsPerMinute: 2,
    maxConcurrentRuns: 3,
    maxOpenStreams: 30,
    defaultTools: ['read', 'grep'],
    instructions: 'Be brief.',
    requiresAction: false,
    maxBodyBytes: 4,
    maxBytesInProgress: 40,
    maxDurationMs: 5,
    heartbeatMs: 6,
    sendTimeoutMs: 60,
    waitForAnswers: true,
    chatTitles: false,
    webhooks: { url: 'https://example.com/hook', secret: SECRET, events: ['run.waiting'], allowPrivate: true },
    maxTurns: 8,
    toolTimeoutMs: 9,
  });
});

test('prefers flags to the configuration', () => {
  expect(options('[server]\nhost = "::1"\nport = 1', { host: 'localhost', port: 0 })).toMatchObject({
    host: 'localhost',
    port: 0,
  });
});

describe('rejects', () => {
  test.each(['http://x', '127.0.0.1:80', '[::1]', 'a b'])('--host %s', (host) => {
    expect(() => options('', { host })).toThrow(/^--host cannot be ".*"\. It takes a host such as 127\.0\.0\.1/);
  });

  test.each(['NONE', 'SHORT'])('a webhook whose secret is not in the environment (%s)', (name) => {
    expect(() => options(`[server.webhooks]\nurl = "https://a.example"\nsecret_env = "${name}"`)).toThrow(
      `treadle.toml: server.webhooks.secret_env names ${name}. Set this environment variable to a secret`,
    );
  });

  test('unknown default_tools', () => {
    expect(() => options('[server]\ndefault_tools = ["read", "grpe"]')).toThrow(
      new CommandError(
        'treadle.toml: server.default_tools names "grpe", which is not a tool of the server. Did you mean "grep"? ' +
          'Tools: read, glob, grep.',
      ),
    );
    expect(() => options('[server]\ndefault_tools = ["read"]', {}, [])).toThrow(
      new CommandError(
        'treadle.toml: server.default_tools names "read", but the server has no tools: see tools in [server], and ' +
          'tool_loop_enabled in [orchestrator].',
      ),
    );
  });
});

import { readFileSync } from 'node:fs';
import { describe, expect, it, test } from 'vitest';
import {
  CAPABILITIES_SCHEMA,
  capabilitiesFrom,
  decodeCapabilities,
  encodeCapabilities,
  type Capabilities,
} from './capabilities.ts';
import { COMMAND_SCHEMA, decodeCommand, encodeCommand, PAYLOAD_SCHEMAS, type KnownCommand } from './command.ts';
import { MAX_MESSAGE_BYTES } from './message.ts';
import {
  decodeReport,
  encodeProgress,
  encodeReport,
  REPORT_ERROR_TYPES,
  REPORT_SCHEMA,
  type ResultReport,
} from './report.ts';
import { decodeStatus, encodeStatus, STATUS_SCHEMA } from './status.ts';
import { isDeviceId, topicsOf } from './topics.ts';

const json = (value: unknown): Uint8Array => Buffer.from(JSON.stringify(value));

describe('topics', () => {
  it('are those of the original protocol under another prefix', () => {
    const topics = topicsOf('evoclaw');
    expect(topics.commands('living-room-pi')).toBe('evoclaw/agents/living-room-pi/commands');
    expect(topics.reports('living-room-pi')).toBe('evoclaw/agents/living-room-pi/reports');
    expect([topics.broadcast, topics.all('status')]).toEqual(['evoclaw/broadcast', 'evoclaw/agents/+/status']);
    expect(topics.parse('evoclaw/agents/pi/capabilities')).toEqual({ kind: 'capabilities', id: 'pi' });
    expect(topicsOf('site/treadle').parse('site/treadle/broadcast')).toEqual({ kind: 'broadcast' });
  });

  test.each([
    'evoclaw/agents/pi',
    'evoclaw/agents/pi/reports/x',
    'evoclaw/agents/+/reports',
    'other/agents/pi/reports',
  ])('does not parse %s', (topic) => expect(topicsOf('evoclaw').parse(topic)).toBeUndefined());

  test.each(['', '+', '#', 'a/b', 'a b', '.hidden', 'x'.repeat(65), 'ü'])('%j is not a device', (id) =>
    expect(isDeviceId(id)).toBe(false),
  );

  test.each(['', '/a', 'a/', 'a//b', 'a/+', '#'])('%j is not a prefix', (prefix) =>
    expect(() => topicsOf(prefix)).toThrow('cannot be used'),
  );
});

describe('commands', () => {
  it('counts no brackets of texts as levels', () => {
    const text = `"\\${'['.repeat(300)}`;
    const command = { command: 'ping', request_id: 'r', payload: { text } };
    expect(decodeCommand(json(command))).toMatchObject({ type: 'command', command: { payload: { text } } });
  });

  it('reads the command of the document, with its id in both places', () => {
    const given = {
      command: 'tool',
      payload: {
        tool: 'bash',
        parameters: { command: 'ls -la' },
        timeout_ms: 30_000,
        request_id: 'req-1739635200000000000',
      },
      request_id: 'req-1739635200000000000',
    };
    expect(decodeCommand(json(given))).toEqual({
      type: 'command',
      command: { type: 'tool', request_id: 'req-1739635200000000000', payload: given.payload },
    });
  });

  test.each([
    ['only outside', { command: 'tool', payload: { tool: 'read' }, request_id: 'r' }],
    ['only inside', { command: 'tool', payload: { tool: 'read', request_id: 'r' } }],
    ['as the diagram has it', { command: 'execute', payload: { tool: 'read' }, request_id: 'r' }],
    ['with unknown fields', { command: 'tool', payload: { tool: 'read', x: 1 }, request_id: 'r', y: [] }],
  ])('reads a call with its id %s', (_, given) => {
    expect(decodeCommand(json(given))).toMatchObject({
      type: 'command',
      command: { type: 'tool', request_id: 'r', payload: { tool: 'read', parameters: {} } },
    });
  });

  test.each<[string, KnownCommand]>([
    [
      'tool',
      {
        type: 'tool',
        request_id: 'run_1/t1.tool.0',
        payload: { tool: 'bash', parameters: { command: 'x' }, timeout_ms: 5, stream: true },
        expires_at: 99,
        session: 's',
      },
    ],
    ['cancel', { type: 'cancel', request_id: 'a', payload: { target: 'b' } }],
    ['query', { type: 'query', request_id: 'a', payload: { target: 'b' } }],
    ['ack', { type: 'ack', request_id: 'a', payload: { targets: ['b', 'c'] } }],
    ['ping', { type: 'ping', request_id: 'a', payload: {} }],
    ['tools_list', { type: 'tools_list', request_id: 'a', payload: {} }],
    ['skill', { type: 'skill', request_id: 'a', payload: { action: 'reload' } }],
    ['prompt', { type: 'prompt', request_id: 'a', payload: { prompt: 'How warm is it?' } }],
    ['blob', { type: 'blob', request_id: 'a', payload: { blob: 'a'.repeat(64), offset: 0, length: 10 } }],
    ['ops', { type: 'ops', request_id: 'a', payload: { op: 'stat', args: { path: 'x' } }, session: 's' }],
    ['shutdown', { type: 'shutdown', request_id: 'a', payload: { reason: 'update' } }],
  ])('reads the %s that it writes', (_, command) => {
    const read = decodeCommand(encodeCommand(command));
    const payload = command.type === 'tool' ? { ...command.payload, request_id: command.request_id } : command.payload;
    expect(read).toEqual({ type: 'command', command: { ...command, payload } });
  });

  test.each([
    ['no JSON', '{', 'invalid', undefined, 'it is not JSON'],
    ['no UTF-8', new Uint8Array([0xff, 0xfe]), 'invalid', undefined, 'it is not UTF-8'],
    ['a list', '[]', 'invalid', undefined, 'it is not a JSON object'],
    [
      'too many levels',
      `{"command":"ping","request_id":"r\\"","x":${'['.repeat(200)}${']'.repeat(200)}}`,
      'invalid',
      undefined,
      'it has more than 200 levels',
    ],
    ['null', 'null', 'invalid', undefined, 'it is not a JSON object'],
    ['no command', json({ request_id: 'r' }), 'invalid', 'r', 'command'],
    ['no id', json({ command: 'ping' }), 'invalid', undefined, 'request_id is missing'],
    ['an empty id', json({ command: 'ping', request_id: '' }), 'invalid', undefined, 'request_id'],
    ['an id with a line feed', json({ command: 'ping', request_id: 'a\nb' }), 'invalid', undefined, 'request_id'],
    [
      'an id of 257 characters',
      json({ command: 'ping', request_id: 'a'.repeat(257) }),
      'invalid',
      undefined,
      'request_id',
    ],
    [
      'two ids',
      json({ command: 'tool', payload: { tool: 'x', request_id: 'a' }, request_id: 'b' }),
      'invalid',
      'b',
      'differ',
    ],
    ['a tool without a name', json({ command: 'tool', payload: {}, request_id: 'r' }), 'invalid', 'r', 'tool'],
    [
      'a list as parameters',
      json({ command: 'tool', payload: { tool: 'x', parameters: [] }, request_id: 'r' }),
      'invalid',
      'r',
      'parameters',
    ],
    [
      'no time',
      json({ command: 'tool', payload: { tool: 'x', timeout_ms: 0 }, request_id: 'r' }),
      'invalid',
      'r',
      'timeout_ms',
    ],
    [
      'an unknown command',
      json({ command: 'evolution', payload: {}, request_id: 'r' }),
      'unsupported',
      'r',
      'there is no command "evolution"',
    ],
    [
      'a strategy',
      json({ command: 'update_strategy', payload: {}, request_id: 'r' }),
      'unsupported',
      'r',
      'update_strategy',
    ],
    ['a name of every object', json({ command: 'constructor', request_id: 'r' }), 'unsupported', 'r', 'constructor'],
    [
      'an action',
      json({ command: 'execute', payload: { action: 'get_prices' }, request_id: 'r' }),
      'unsupported',
      'r',
      'only supported with a tool',
    ],
    ['another version', json({ command: 'ping', request_id: 'r', version: 2 }), 'unsupported', 'r', 'version 2'],
    [
      'a path as a blob',
      json({ command: 'blob', payload: { blob: '../x', offset: 0, length: 1 }, request_id: 'r' }),
      'invalid',
      'r',
      'blob',
    ],
    ['too much', Buffer.alloc(MAX_MESSAGE_BYTES + 1, 32), 'invalid', undefined, 'at most 1048576'],
  ])('refuses %s', (_, bytes, type, requestId, problem) => {
    const read = decodeCommand(bytes as Uint8Array);
    expect(read).toMatchObject({ type, requestId });
    expect((read as { problem: string }).problem).toContain(problem);
  });
});

describe('reports', () => {
  const flat = { status: 'success', tool: 'bash', result: 'temp=45.6°C', stderr: '', exit_code: 0, elapsed_ms: 123 };

  it('reads the flat reports of the document, which have no id', () => {
    expect(decodeReport(json(flat))).toEqual({ type: 'result', report: flat });
    const failed = {
      status: 'error',
      tool: 'bash',
      error: 'Command timed out after 30000ms',
      error_type: 'timeout',
    };
    expect(decodeReport(json(failed))).toEqual({ type: 'result', report: failed });
  });

  it('reads wrapped reports, with the id wherever it is', () => {
    const wrapped = (payload: object, kind = 'result'): object => ({
      agent_id: 'pi',
      agent_type: 'monitor',
      report_type: kind,
      payload,
      timestamp: 1_739_635_200,
    });
    expect(decodeReport(json(wrapped({ ...flat, request_id: 'r' })))).toEqual({
      type: 'result',
      report: { ...flat, request_id: 'r' },
    });
    expect(decodeReport(json({ ...wrapped(flat), request_id: 'r' }))).toEqual({
      type: 'result',
      report: { ...flat, request_id: 'r' },
    });
    expect(decodeReport(json(wrapped({ error: 'missing coin', request_id: 'r' }, 'error')))).toEqual({
      type: 'result',
      report: { status: 'error', error: 'missing coin', error_type: 'execution_failed', request_id: 'r' },
    });
    expect(decodeReport(json(wrapped({ pong: true })))).toEqual({
      type: 'result',
      report: { status: 'success', result: { pong: true } },
    });
    expect(decodeReport(json(wrapped({ uptime: 3600 }, 'heartbeat')))).toEqual({ type: 'other', kind: 'heartbeat' });
  });

  test.each<[string, ResultReport]>([
    ['success', { request_id: 'r', ...flat, status: 'success', timestamp: 5, session: 's' }],
    ['JSON', { request_id: 'r', status: 'success', result: { a: [1, null] } }],
    [
      'an image',
      {
        request_id: 'r',
        status: 'success',
        content: [{ type: 'image', mediaType: 'image/png', source: { type: 'data', data: 'AAAA' } }],
      },
    ],
    ['a blob', { request_id: 'r', status: 'success', result_blob: { id: 'f'.repeat(64), bytes: 9 } }],
    [
      'an error',
      { request_id: 'r', status: 'error', error: 'no', error_type: 'permission_denied', requires: ['shell'] },
    ],
  ])('reads the report with %s that it writes', (_, report) => {
    expect(decodeReport(encodeReport(report))).toEqual({ type: 'result', report });
  });

  it('reads the progress that it writes', () => {
    const progress = { request_id: 'r', seq: 3, progress: 'half' };
    expect(decodeReport(encodeProgress(progress))).toEqual({ type: 'progress', report: progress });
  });

  it('takes an error of an unknown type for a failed execution', () => {
    expect(decodeReport(json({ status: 'error', error: 'x', error_type: 'cosmic_ray' }))).toMatchObject({
      report: { error_type: 'execution_failed' },
    });
    expect(decodeReport(json({ status: 'error' }))).toMatchObject({ report: { error: '' } });
  });

  test.each([
    ['no JSON', Buffer.from('ok'), 'not JSON'],
    ['neither status nor error', json({ tool: 'bash' }), 'neither a status nor an error'],
    ['content that is no list', json({ status: 'success', content: 'x' }), 'content'],
    ['a block of an unknown type', json({ status: 'success', content: [{ type: 'video' }] }), 'content.0.type'],
    ['progress without an id', json({ report_type: 'progress', progress: 'x' }), 'request_id is missing'],
    ['another version', json({ ...flat, version: 9 }), 'version 9'],
  ])('refuses %s', (_, bytes, problem) => {
    const read = decodeReport(bytes);
    expect(read.type).toBe('invalid');
    expect((read as { problem: string }).problem).toContain(problem);
  });
});

describe('status', () => {
  it('reads what it writes, and takes the name from the topic', () => {
    const status = { agent_id: 'pi', agent_type: 'desktop', status: 'online', session: 's', timestamp: 7 } as const;
    expect(decodeStatus(encodeStatus(status), 'pi')).toEqual({ type: 'status', status });
    expect(decodeStatus(encodeStatus(status), 'other')).toMatchObject({ status: { agent_id: 'other' } });
  });

  test.each([
    ['idle', 'online'],
    ['busy', 'online'],
    ['draining', 'draining'],
    ['error', 'offline'],
    ['offline', 'offline'],
  ])('%s means %s', (word, meaning) =>
    expect(decodeStatus(json({ agent_id: 'pi', status: word, uptime_seconds: 3 }), 'pi')).toMatchObject({
      status: { status: meaning },
    }),
  );

  test.each(['', '{}', '{"status":7}', '{"status":"online","version":3}'])('refuses %j', (text) =>
    expect(decodeStatus(text, 'pi').type).toBe('invalid'),
  );
});

describe('capabilities', () => {
  const capabilities: Capabilities = {
    agent_id: 'pi',
    agent_type: 'desktop',
    session: 's',
    ledger: true,
    capabilities: ['shell'],
    platform: 'linux-arm64',
    folder: '/home/pi',
    home: '/home/pi',
    tools: [
      {
        name: 'bash',
        description: 'Execute shell commands',
        parameters: { type: 'object', properties: { command: { type: 'string' } }, required: ['command'] },
        effect: 'once',
        timeout_ms: 30_000,
        permissions: ['shell'],
        touches: [{ type: 'command', command: '{command}' }],
        evoclaw: { binary: 'bin/dt-bash' },
      },
    ],
    ops: { exec: true, sandbox: { engine: 'bubblewrap', promises: ['network'] } },
    skills: [{ name: 'desktop-tools', version: '2.0.0' }],
    limits: { parallel: 4, queue: 32 },
  };

  it('reads what it writes', () => {
    expect(decodeCapabilities(encodeCapabilities(capabilities), 'pi')).toEqual({ type: 'capabilities', capabilities });
  });

  const [bash] = capabilities.tools;
  test.each([
    ['no tools', {}],
    ['a tool without a schema', { tools: [{ name: 'x', description: '' }] }],
    ['a schema that is no object', { tools: [{ ...bash, parameters: { type: 'string' } }] }],
    ['a name that no provider accepts', { tools: [{ ...bash, name: 'a b' }] }],
    ['two tools of one name', { tools: [bash, bash] }],
    ['a relative folder', { tools: [], folder: 'home' }],
    ['an unknown effect', { tools: [{ ...bash, effect: 'twice' }] }],
    ['a touch at a place of its choice', { tools: [{ ...bash, touches: [{ type: 'read', path: 'x', on: 'here' }] }] }],
    ['a touch of an unknown type', { tools: [{ ...bash, touches: [{ type: 'all', path: 'x' }] }] }],
    ['another version', { tools: [], version: 2 }],
  ])('refuses %s', (_, value) => expect(capabilitiesFrom(value, 'pi').type).toBe('invalid'));
});

describe('docs/edge-protocol.md', () => {
  const page = readFileSync(new URL('../../../../docs/edge-protocol.md', import.meta.url), 'utf8');

  it('shows the schemas that both sides validate with', () => {
    const shown = Array.from(page.matchAll(/^```json schema\n(.*?)^```$/gms), ([, text]) => JSON.parse(text!));
    expect(shown).toEqual([COMMAND_SCHEMA, PAYLOAD_SCHEMAS.tool, REPORT_SCHEMA, STATUS_SCHEMA, CAPABILITIES_SCHEMA]);
  });

  it('describes every command and every type of error', () => {
    for (const name of [...Object.keys(PAYLOAD_SCHEMAS), 'execute', ...REPORT_ERROR_TYPES]) {
      expect(page).toMatch(new RegExp(`^\\| \`${name}\` +\\|`, 'm'));
    }
  });
});

import { once } from 'node:events';
import { readdir, readFile, stat } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { PassThrough, Readable } from 'node:stream';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import { command, type Printed } from '../command/in-process.ts';
import { playground, type Playground } from '../command/playground.ts';
import { scriptedOpenAi, type ChatRequest, type ScriptedOpenAi, type Step } from '../command/scripted-openai.ts';
import { treadle as treadleProcess } from '../command/treadle-process.ts';
import { protectedServer, type ProtectedServer } from './protected-server.ts';
import { listed, scriptedServer } from './scripted-server.ts';

vi.setConfig({ testTimeout: 30_000 });

const FILESYSTEM = join(
  import.meta.dirname,
  '../../node_modules/@modelcontextprotocol/server-filesystem/dist/index.js',
);
const THOUSAND = Array.from({ length: 1000 }, (_, index) => `task_${index}_${index % 2 ? 'archive' : 'create'}`);
THOUSAND[999] = 'task.archive';

let place: Playground;
let mcp: ProtectedServer;
let called: string[] = [];
beforeAll(async () => {
  const { fetch: answer } = scriptedServer({
    'tools/list': () => listed(...THOUSAND),
    'tools/call': ({ params }) => {
      called.push(String(params['name']));
      return { content: [{ type: 'text', text: `did ${String(params['name'])}` }] };
    },
  });
  mcp = await protectedServer(answer);
});
afterAll(() => mcp.close());
beforeEach(async () => {
  place = await playground();
  called = [];
  mcp.accepted = 'given';
});
afterEach(() => place.remove());

const configure = (toml: string): Promise<void> => place.write('treadle.toml', toml);
const treadle = (args: readonly string[], env: Record<string, string> = {}): Promise<Printed> =>
  command(args, place.folder, { env });
const docs = (): string => `[mcp.servers.docs]\nurl = "${mcp.base}/mcp"\n`;
const withToken = (): string => `${docs()}headers_env = { Authorization = "DOCS_TOKEN" }\n`;
const TOKEN = { DOCS_TOKEN: 'given' };

describe('treadle mcp', () => {
  test('lists the servers, and calls a tool of a program', async () => {
    await configure(`[mcp.servers.files]\ncommand = "node"\nargs = [${JSON.stringify(FILESYSTEM)}, "."]\n${docs()}`);
    const list = await treadle(['mcp', 'list']);
    expect(list.stdout.replaceAll(/ +/g, ' ')).toMatch(/^NAME SIGN-IN SERVER\nfiles - node .*\ndocs no http.*\n$/);
    const allowed = await treadle(['mcp', 'call', 'files', 'list_directory', '{"path": "."}', '--yes']);
    expect([allowed.code, allowed.stdout]).toEqual([0, expect.stringContaining('[FILE] notes.txt')]);
  });

  test('lists and calls the tools of a server with a header from the environment, under the policy', async () => {
    await configure(withToken());
    const tools = await treadle(['mcp', 'tools', 'docs', '--json'], TOKEN);
    expect(JSON.parse(tools.stdout)).toHaveLength(1000);
    const denied = await treadle(['mcp', 'call', 'docs', 'task_7_archive'], TOKEN);
    expect([denied.code, denied.stdout, called]).toEqual([1, '', []]);
    expect(denied.stderr).toContain(
      'To allow every call of the tool, set in [policy] of treadle.toml: tools.task_7_archive = "allow"',
    );
    const result = await treadle(['mcp', 'call', 'docs', 'task_7_archive', '--json', '--yes'], TOKEN);
    expect(JSON.parse(result.stdout)).toMatchObject({ content: [{ text: 'did task_7_archive' }], isError: false });
    const odd = await treadle(['mcp', 'call', 'docs', 'task.archive', '--yes'], TOKEN);
    expect([odd.code, odd.stdout]).toEqual([0, expect.stringContaining('did task.archive')]);
    expect(await treadle(['mcp', 'call', 'docs', 'task_7_archiv'], TOKEN)).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('has no tool "task_7_archiv". Did you mean'),
    });
    expect(await treadle(['mcp', 'tools', 'doc'])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('There is no MCP server "doc". Did you mean "docs"?'),
    });
  });
});

describe('treadle mcp doctor', () => {
  let silent: Server;
  beforeAll(async () => {
    silent = createServer((_, response) => void response.writeHead(200, { 'content-type': 'text/html' }).end('<html>'));
    await once(silent.listen(0, '127.0.0.1'), 'listening');
  });
  afterAll(() => silent.close());

  test('says what is wrong with a server, and what to do', async () => {
    const closed = createServer().listen(0, '127.0.0.1');
    await once(closed, 'listening');
    const { port } = closed.address() as AddressInfo;
    await once(closed.close(), 'close');
    await configure(`
[mcp.servers.missing]
command = "treadle-no-such-program"
[mcp.servers.dies]
command = "sh"
args = ["-c", "echo 'FOO is not set' >&2; exit 3"]
[mcp.servers.down]
url = "http://127.0.0.1:${port}/mcp"
[mcp.servers.page]
url = "http://127.0.0.1:${(silent.address() as AddressInfo).port}/mcp"
[mcp.servers.unset]
url = "${mcp.base}/mcp"
headers_env = { Authorization = "NOT_SET" }
[mcp.servers.wrong]
url = "${mcp.base}/mcp"
headers_env = { Authorization = "DOCS_TOKEN" }
[mcp.servers.login]
url = "${mcp.base}/mcp"
`);
    const { code, stdout } = await treadle(['mcp', 'doctor', '--json'], { DOCS_TOKEN: 'other' });
    expect(code).toBe(1);
    const all = JSON.parse(stdout) as { name: string; ok: boolean; findings: { problem: string; remedy: string }[] }[];
    const found = Object.fromEntries(
      all.map(({ name, ok, findings: [one] }) => [name, [ok, one!.problem, one!.remedy]]),
    );
    const text = (part: string): unknown => expect.stringContaining(part);
    expect(found).toEqual({
      missing: [false, text('no program "treadle-no-such-program"'), text('Install the program, or correct command')],
      dies: [false, expect.stringMatching(/exit code 3.*FOO is not set/s), text('Try it by hand: sh -c')],
      down: [false, text('ECONNREFUSED'), text('Nothing listens there.')],
      page: [false, text('"page"'), text('Check that url in [mcp.servers.page] is the address of an MCP server')],
      unset: [false, text('needs the environment variable NOT_SET'), text('[mcp.servers.unset]')],
      wrong: [false, text('"wrong"'), text('Check the value of DOCS_TOKEN')],
      login: [false, text('needs you to sign in'), 'Sign in with: treadle mcp login login'],
    });
  });

  test('reports a server that works, and tools that it does not have', async () => {
    await configure(`${withToken()}tools = ["task_0_create", "gone"]\n`);
    const { code, stdout } = await treadle(['mcp', 'doctor', 'docs'], TOKEN);
    expect(code).toBe(0);
    expect(stdout).toMatch(/^ok {4}docs: \d{4}-\d\d-\d\d, scripted 1, 1 tool, /);
    expect(stdout).toContain('It has no tools named gone.');
  });
});

describe('treadle mcp login', () => {
  /** Starts a login, and calls `act` with the address that it prints. */
  async function login(act: (url: URL) => Promise<unknown>): Promise<Printed> {
    const stderr = new PassThrough().setEncoding('utf8');
    let printed = '';
    let acted: Promise<unknown> | undefined;
    const watched = new PassThrough().on('data', (chunk) => {
      printed += String(chunk);
      const url = /^http\S+authorize\S+$/m.exec(printed)?.[0];
      if (url !== undefined) acted ??= act(new URL(url));
    });
    stderr.on('data', (chunk) => watched.write(chunk));
    const result = await command(['mcp', 'login', 'docs', '--no-browser'], place.folder, { stderr });
    await acted;
    return { ...result, stderr: printed };
  }
  const callback = (url: URL, query: Record<string, string>): Promise<Response> =>
    fetch(`${url.searchParams.get('redirect_uri')!}?${new URLSearchParams(query).toString()}`);

  test('signs in through a port of this machine, and keeps the tokens beside the store', async () => {
    await configure(docs());
    const states: number[] = [];
    const { code, stderr } = await login(async (url) => {
      states.push((await callback(url, { code: 'stolen', state: 'other' })).status);
      states.push((await callback(url, { code: 'c', state: url.searchParams.get('state')! })).status);
    });
    expect([code, states]).toEqual([0, [400, 200]]);
    expect(stderr).toMatch(/Signed in to docs\.\n$/);
    const folder = join(place.folder, '.treadle/treadle.db.secrets');
    const file = join(
      folder,
      (await readdir(folder)).find((name) => name.endsWith('.secret'))!,
    );
    expect([(await stat(folder)).mode & 0o777, (await stat(file)).mode & 0o777]).toEqual([0o700, 0o600]);
    expect(await readFile(file, 'utf8')).toContain(mcp.accepted);
    expect((await treadle(['mcp', 'call', 'docs', 'task_1_archive', '--yes'])).stdout).toBe('did task_1_archive\n');
    expect((await treadle(['mcp', 'list'])).stdout).toMatch(/docs +yes/);
    // The tools of a run cannot read them.
    const read = await treadle(['tools', 'call', 'read', JSON.stringify({ path: file }), '--yes']);
    expect([read.code, read.stderr]).toEqual([1, expect.stringContaining('denied')]);

    expect((await treadle(['mcp', 'logout', 'docs'])).stderr).toBe('Signed out of docs.\n');
    expect((await treadle(['mcp', 'call', 'docs', 'task_1_archive', '--yes'])).stderr).toContain(
      'treadle mcp login docs',
    );
    expect((await readdir(folder)).filter((name) => name.endsWith('.secret'))).toEqual([]);
  });

  test('the tools of a run cannot read the tokens beside a store elsewhere', async () => {
    await configure('[store]\nurl = "sqlite:data/runs.db"\n');
    await place.write('data/runs.db.secrets/a.secret', 'hunter2');
    for (const [name, input] of [
      ['read', { path: 'data/runs.db.secrets/a.secret' }],
      ['bash', { command: 'cat data/runs.db.secrets/a.secret' }],
    ] as const) {
      const { code, stdout, stderr } = await treadle(['tools', 'call', name, JSON.stringify(input), '--yes']);
      expect([code, stdout, stderr]).toEqual([1, '', expect.stringContaining('denied')]);
    }
  });

  test('says why it failed', async () => {
    await configure(docs());
    const refused = await login((url) =>
      callback(url, { error: 'access_denied', state: url.searchParams.get('state')! }),
    );
    expect([refused.code, refused.stderr]).toEqual([
      1,
      expect.stringContaining('Signing in to the MCP server "docs" failed: access_denied'),
    ]);
    await configure('[mcp.servers.docs]\ncommand = "x"\n');
    expect((await treadle(['mcp', 'login', 'docs'])).stderr).toContain('There is nothing to sign in to.');
  });
});

describe('runs', () => {
  let model: ScriptedOpenAi;
  afterEach(() => model.close());
  const script = async (...steps: Parameters<typeof scriptedOpenAi>[0]): Promise<readonly string[]> => {
    model = await scriptedOpenAi(steps);
    return ['--model', 'openai/m', '--base-url', model.baseURL];
  };
  const callOf = (name: string, input: object = {}): Step => ({ calls: [{ name, arguments: JSON.stringify(input) }] });
  const offered = (index: number): readonly string[] =>
    (model.requests[index]!.tools ?? []).map((one) => one.function.name);

  test('a run goes on without a server that is down', async () => {
    const flags = await script({ text: ['Hello.'] });
    await configure(
      `[mcp.servers.gone]\ncommand = "treadle-no-such-program"\n${withToken()}tools = ["task_0_create"]\n`,
    );
    const { code, stdout, stderr } = await treadle(['run', 'Hi', ...flags], TOKEN);
    expect([code, stdout]).toEqual([0, 'Hello.\n']);
    expect(stderr).toMatch(/There is no program "treadle-no-such-program".* The MCP server "gone" is left out\./);
    expect(offered(0)).toContain('task_0_create');
    expect(offered(0)).toContain('read');
  });

  test('--tools chooses servers, too', async () => {
    const flags = await script({ text: ['1'] }, { text: ['2'] }, { text: ['3'] });
    await configure(`${withToken()}tools = ["task_0_create"]\n`);
    for (const tools of ['none', 'glob', 'glob,mcp:docs'])
      await treadle(['run', 'Hi', '--tools', tools, ...flags], TOKEN);
    expect([offered(0), offered(1), offered(2)]).toEqual([[], ['glob'], ['glob', 'task_0_create']]);
    const unknown = await treadle(['run', 'Hi', '--tools', 'mcp:dox', ...flags], TOKEN);
    expect([unknown.code, unknown.stderr]).toEqual([2, expect.stringContaining('There is no MCP server "dox"')]);
  });

  test('a thousand tools are found on demand, and are there in another process that resumes the run', async () => {
    const flags = await script(
      callOf('tool_search', { query: 'archive 501', limit: 1 }),
      callOf('task_501_archive'),
      callOf('task_501_archive'),
      callOf('tool_search', { query: 'task_2_create', limit: 1 }),
      callOf('task_2_create'),
      { text: ['Done.'] },
    );
    // The policy asks about the call, and nobody can answer: the run pauses.
    await configure(`${withToken()}approval = "always"\n[policy.tools]\n"*" = "allow"\n`);
    const started = await treadle(['run', 'Archive it', '--tools', 'glob,mcp', ...flags], TOKEN);
    expect(started.code).toBe(4);
    expect(offered(0)).toEqual(['glob', 'tool_search']);
    expect(offered(1)).toEqual(['glob', 'tool_search', 'task_501_archive']);
    expect(JSON.stringify(model.requests[1]!.tools).length).toBeLessThan(4_000);
    expect(called).toEqual([]);

    const id = /runs resume (\S+)/.exec(started.stderr)![1]!;
    const resume = treadleProcess(['runs', 'resume', id, '--yes', ...flags], {
      cwd: place.folder,
      env: TOKEN,
      stdin: '',
    });
    expect(await resume.ended).toMatchObject({ code: 0, stdout: 'Done.\n' });
    expect(called).toEqual(['task_501_archive', 'task_501_archive', 'task_2_create']);
    expect(offered(5)).toEqual(['glob', 'tool_search', 'task_501_archive', 'task_2_create']);
  });

  test('a list that changes during a run changes its tools from one of the next turns on', async () => {
    const next = ({ tools = [] }: ChatRequest): Step => {
      if (called.includes('grown')) return { text: ['Done.'] };
      return callOf(tools.some((one) => one.function.name === 'grown') ? 'grown' : 'grow', { call: called.length });
    };
    const flags = await script(...Array.from({ length: 20 }, () => next));
    let names = ['grow'];
    const { fetch: answer } = scriptedServer({
      'tools/list': () => listed(...names),
      'tools/call': ({ params, send }) => {
        called.push(String(params['name']));
        if (names.length === 1) send({ method: 'notifications/tools/list_changed' });
        names = ['grow', 'grown'];
        return { content: [{ type: 'text', text: 'done' }] };
      },
    });
    const growing = await protectedServer(answer);
    growing.accepted = 'given';
    const entry = `url = "${growing.base}/mcp"\nheaders_env = { Authorization = "DOCS_TOKEN" }`;
    await configure(`[mcp.servers.growing]\n${entry}\n[policy.tools]\n"*" = "allow"\n`);
    try {
      expect((await treadle(['run', 'Grow', '--tools', 'mcp', ...flags], TOKEN)).stdout).toBe('Done.\n');
    } finally {
      await growing.close();
    }
    expect(offered(0)).toEqual(['grow']);
    expect(offered(model.requests.length - 1)).toEqual(['grow', 'grown']);
  });

  test('a chat keeps the tools that an earlier message has found', async () => {
    const flags = await script(
      callOf('tool_search', { query: 'archive 501', limit: 1 }),
      { text: ['Found.'] },
      callOf('task_501_archive'),
      { text: ['Done.'] },
    );
    await configure(`${withToken()}[policy.tools]\n"*" = "allow"\n`);
    const stdin = Readable.from([Buffer.from('Find it\nArchive it\n')]);
    const { code } = await command(['chat', '--tools', 'mcp', ...flags], place.folder, { stdin, env: TOKEN });
    expect(code).toBe(0);
    expect(called).toEqual(['task_501_archive']);
  });

  test('serve offers a server by its label or as a default tool, and searches one with many tools', async () => {
    const flags = await script(
      callOf('task_0_create'),
      { text: ['Labelled.'] },
      callOf('task_0_create'),
      {
        text: ['Default.'],
      },
      callOf('tool_search', { query: 'archive 501', limit: 1 }),
      callOf('task_501_archive'),
      { text: ['Found.'] },
      { text: ['Continued.'] },
    );
    await configure(
      `${withToken()}tools = ["task_0_create"]\n${withToken().replace('docs', 'many')}[mcp.servers.unset]\ncommand = "x"\nenv = { A = "$NOT_SET" }\n` +
        `[server]\ndefault_tools = ["mcp:docs"]\n[policy.tools]\n"*" = "allow"\n`,
    );
    const stdout = new PassThrough().setEncoding('utf8');
    const address = once(stdout, 'data').then(([line]) => /http\S+/.exec(String(line))![0]);
    let stop = (): void => {};
    const onTerminate = (listener: () => void): (() => void) => {
      stop = listener;
      return () => {};
    };
    const served = command(['serve', '--port', '0', '--store', 'memory:', ...flags], place.folder, {
      env: TOKEN,
      stdout,
      onTerminate,
    });
    const respond = async (tools: readonly object[], previous?: string): Promise<readonly string[]> => {
      const response = await fetch(`${await address}/v1/responses`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ model: 'openai/m', input: 'Go', tools, previous_response_id: previous }),
      });
      const { id, output } = (await response.json()) as {
        id: string;
        output: { type: string; server_label?: string }[];
      };
      last = id;
      return output.map(({ type, server_label: label }) => (label === undefined ? type : `${type} ${label}`));
    };
    let last = '';
    const labelled = [{ type: 'mcp', server_label: 'docs', require_approval: 'never' }];
    try {
      expect(await respond(labelled)).toEqual(['mcp_list_tools docs', 'mcp_call docs', 'message']);
      expect(await respond([])).toEqual(expect.arrayContaining(['mcp_call docs', 'message']));
      const many = [{ type: 'mcp', server_label: 'many', require_approval: 'never' }];
      const found = ['mcp_list_tools many', 'mcp_call treadle', 'mcp_call many', 'message'];
      expect(await respond(many)).toEqual(found);
      expect(offered(4).filter((name) => name !== 'task_0_create')).toEqual(['tool_search']);
      expect(offered(5)).toContain('task_501_archive');
      await respond(many, last);
      expect(offered(7)).toContain('task_501_archive');
      expect(offered(7).length).toBeLessThan(5);
    } finally {
      stop();
    }
    expect(called).toEqual(['task_0_create', 'task_0_create', 'task_501_archive']);
    const { code, stderr } = await served;
    expect(code).toBe(0);
    expect(stderr).toContain('needs the environment variable NOT_SET');
  });
});

import { expect, test } from 'vitest';
import { CommandError } from '../command-line/command.ts';
import { parseConfig } from './load.ts';

test('takes programs and addresses', () => {
  const toml = `
[mcp.servers.files]
command = "npx"
args = ["-y", "server", "--token-limit", "5"]
env = { LEVEL = "info", GITHUB_TOKEN = "$GH" }
cwd = "sub"
tools = ["read"]
prefix = "fs_"
timeout_ms = 5000
approval = "always"
[mcp.servers.docs]
url = "https://example.com/mcp"
headers_env = { Authorization = "DOCS_TOKEN" }
approval = { never = ["search"] }
trust_annotations = true
oauth = { client_id = "me", client_secret_env = "DOCS_SECRET", scope = "read", redirect_port = 8123 }
`;
  expect(Object.keys(parseConfig(toml, 't').mcp!.servers!)).toEqual(['files', 'docs']);
});

const COMMAND = '[mcp.servers.a]\ncommand = "x"\n';
const URL_ENTRY = '[mcp.servers.a]\nurl = "https://host/mcp"\n';

test.each([
  ['[mcp.server.a]', 'mcp.server is not known, did you mean servers? Allowed here: servers.'],
  [
    `${COMMAND}arg = []`,
    'mcp.servers.a.arg is not known, did you mean args? Allowed here: command, args, env, cwd, url, headers_env, oauth, tools, ' +
      'prefix, timeout_ms, park_after_ms, approval, trust_annotations, sandbox.',
  ],
  [
    `${COMMAND}url = "https://host/mcp"`,
    'mcp.servers.a has both command and url. Keep command for a program, or url for a server over HTTP.',
  ],
  ['[mcp.servers.a]', 'mcp.servers.a needs command, the program to start, or url, the address of the server.'],
  [`${URL_ENTRY}args = ["x"]`, 'mcp.servers.a.args is only for servers with command. Remove it.'],
  [`${COMMAND}headers_env = { A = "B" }`, 'mcp.servers.a.headers_env is only for servers with url. Remove it.'],
  ['[mcp.servers.a]\nurl = "host/mcp"', 'mcp.servers.a.url must be an address such as https://example.com/mcp.'],
  [
    '[mcp.servers.treadle]\ncommand = "x"',
    'mcp.servers.treadle: "treadle" is the label of Treadle\'s own tools. Choose another name.',
  ],
  [
    '[mcp.servers."a b"]\ncommand = "x"',
    'mcp.servers.a b: the name of a server has at most 32 letters, digits, _ and -.',
  ],
  [`${COMMAND}approval = "ask"`, 'mcp.servers.a.approval must be one of always, never.'],
  [`${COMMAND}approval = { some = [] }`, 'mcp.servers.a.approval.some is not known. Allowed here: always, never.'],
  [`${COMMAND}timeout_ms = 0`, 'mcp.servers.a.timeout_ms must be a whole number from 1 to 2147483647, but is 0.'],
])('%s', (toml, problem) => {
  expect(() => parseConfig(toml, 't')).toThrow(new CommandError(`t: ${problem}`));
});

test.each([
  ['headers', `${URL_ENTRY}headers = { Authorization = "Bearer hunter2" }`, /name the variable with headers_env/],
  ['token', `${URL_ENTRY}token = "hunter2"`, /name the variable with headers_env/],
  [
    'headers_env',
    `${URL_ENTRY}headers_env = { Authorization = "Bearer hunter2" }`,
    /must be the name of an environment/,
  ],
  ['url', '[mcp.servers.a]\nurl = "https://host/mcp?api_key=hunter2"', /name the variable with headers_env/],
  ['url', '[mcp.servers.a]\nurl = "https://me:hunter2@host/mcp"', /name the variable with headers_env/],
  ['env', `${COMMAND}env = { GITHUB_TOKEN = "hunter2" }`, /refer to that: GITHUB_TOKEN = "\$GITHUB_TOKEN"/],
  ['args', `${COMMAND}args = ["--api-key=hunter2"]`, /Give it to the program in env/],
  ['args', `${COMMAND}args = ["--token", "hunter2"]`, /Give it to the program in env/],
  ['oauth', `${URL_ENTRY}oauth = { client_id = "a", client_secret = "hunter2" }`, /with client_secret_env/],
])('rejects a secret in %s, and does not show it', (_, toml, message) => {
  let thrown = '';
  try {
    parseConfig(toml, 't');
  } catch (error) {
    thrown = (error as Error).message;
  }
  expect(thrown).toMatch(message);
  expect(thrown).not.toContain('hunter2');
});

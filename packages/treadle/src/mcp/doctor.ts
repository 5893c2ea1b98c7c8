import { messageOf } from '@treadle/core';
import type { McpErrorCode, McpServer } from '@treadle/tools/mcp';
import { MAX_OFFERED_TOOLS } from '@treadle/tools';
import { CommandError, defineCommand, EXIT, type Command } from '../command-line/command.ts';
import { LOCATION_FLAGS } from '../command-line/flags.ts';
import { resolveContext, type CommandContext } from '../config/context.ts';
import type { McpServerEntry } from '../config/mcp.ts';
import { coloursFor } from '../terminal/colours.ts';
import type { Io } from '../terminal/io.ts';
import { exactLine, oneLine } from '../terminal/printable.ts';
import { durationText, plural } from '../terminal/quantities.ts';
import { findEntry, loadMcpPackage, openSecrets, serverEntries, serverOptions, type ServerPlace } from './servers.ts';

/** What is wrong, and what to do. */
interface Finding {
  readonly problem: string;
  readonly remedy: string;
}

interface Diagnosis {
  readonly name: string;
  /** It can be used. There may be findings nevertheless. */
  readonly ok: boolean;
  readonly protocol_version?: string;
  readonly server?: string;
  readonly tools?: number;
  readonly ms: number;
  readonly findings: readonly Finding[];
}

export const doctorCommand: Command = defineCommand({
  name: 'mcp doctor',
  summary: 'Connect to the MCP servers, and say what is wrong and what to do',
  arguments: ['[NAME]'],
  flags: { json: { type: 'switch', help: 'Print JSON' }, ...LOCATION_FLAGS },
  notes: [
    'Exit codes:\n  0  all servers can be used\n  1  a server cannot be used\n  2  the command or its configuration is invalid',
  ],
  examples: ['treadle mcp doctor', 'treadle mcp doctor files --json'],
  async run({ values, arguments: [name] }, io) {
    const context = await resolveContext(values, io);
    const all = await diagnoseServers(context, io.env, name);
    const exitCode = all.every(({ ok }) => ok) ? EXIT.completed : EXIT.failed;
    if (values.json) {
      io.stdout.write(`${JSON.stringify(all, null, 2)}\n`);
      return exitCode;
    }
    const colours = coloursFor(io.stdout, io.env);
    if (all.length === 0) io.stdout.write('There are no MCP servers: add [mcp.servers.NAME] to treadle.toml.\n');
    for (const { name: of, ok, findings, ...about } of all) {
      const facts = [about.protocol_version, about.server, plural(about.tools ?? 0, 'tool'), durationText(about.ms)];
      const first = ok ? facts.filter((fact) => fact !== undefined).join(', ') : 'cannot be used';
      io.stdout.write(`${ok ? 'ok  ' : colours.red('FAIL')}  ${of}: ${first}\n`);
      for (const { problem, remedy } of findings)
        io.stdout.write(`      ${exactLine(problem)}\n      ${exactLine(remedy)}\n`);
    }
    return exitCode;
  },
});

/** Connects to the named server, or to all. */
export async function diagnoseServers(
  context: CommandContext,
  env: Io['env'],
  name?: string,
): Promise<readonly Diagnosis[]> {
  const entries = name === undefined ? [...serverEntries(context)] : [[name, findEntry(context, name)] as const];
  if (entries.length === 0) return [];
  const place: ServerPlace = { context, env, secrets: await openSecrets(context) };
  return Promise.all(entries.map(([one, entry]) => diagnose(one, entry, place)));
}

async function diagnose(name: string, entry: McpServerEntry, place: ServerPlace): Promise<Diagnosis> {
  const started = Date.now();
  let server: McpServer | undefined;
  try {
    const { mcpServer } = await loadMcpPackage();
    server = mcpServer(await serverOptions(name, entry, place));
    const info = await server.connect();
    const tools = await server.listTools();
    const findings = listFindings(name, entry, { names: tools.map((one) => one.name), leftOut: server.leftOut });
    const about = [info.name, info.version].filter((text) => text !== undefined).join(' ');
    return {
      name,
      ok: true,
      protocol_version: info.protocolVersion,
      ...(about !== '' && { server: oneLine(about, 80) }),
      tools: tools.length,
      ms: Date.now() - started,
      findings,
    };
  } catch (error) {
    const finding = { problem: messageOf(error), remedy: remedyFor(error, name, entry) };
    return { name, ok: false, ms: Date.now() - started, findings: [finding] };
  } finally {
    await server?.close();
  }
}

function listFindings(
  name: string,
  { tools = [], url }: McpServerEntry,
  { names, leftOut }: { readonly names: readonly string[]; readonly leftOut: McpServer['leftOut'] },
): readonly Finding[] {
  const missing = tools.filter((one) => !names.includes(one));
  const isPlain = url !== undefined && /^http:\/\/(?!(localhost|127\.|\[::1\]))/.test(url);
  return [
    ...(missing.length > 0
      ? [{ problem: `It has no tools named ${missing.join(', ')}.`, remedy: `Correct tools in [mcp.servers.${name}].` }]
      : []),
    ...leftOut.map((one) => ({
      problem: `The tool ${one.name} is left out: ${one.reason}`,
      remedy: 'Tell its authors.',
    })),
    ...(names.length > MAX_OFFERED_TOOLS
      ? [
          {
            problem: `It has more than ${MAX_OFFERED_TOOLS} tools, so models find them with tool_search.`,
            remedy: `To offer some directly, name them with tools in [mcp.servers.${name}].`,
          },
        ]
      : []),
    ...(isPlain ? [{ problem: 'Its address is not encrypted.', remedy: 'Use https, if the server offers it.' }] : []),
  ];
}

const TLS = /^(CERT_|ERR_TLS_|ERR_SSL_|UNABLE_TO_|DEPTH_ZERO_|SELF_SIGNED_)|SELF_SIGNED|CERT_UNTRUSTED/;

/** What to do about an error of the client. */
function remedyFor(error: unknown, name: string, { command, args = [], headers_env: headers }: McpServerEntry): string {
  const at = `[mcp.servers.${name}]`;
  if (error instanceof CommandError) return `It is named in ${at}.`;
  const { code } = error as { readonly code?: McpErrorCode };
  switch (code) {
    case 'cannot-start':
      return `Install the program, or correct command and cwd in ${at}. A name without a slash is looked up in PATH.`;
    case 'ended':
      if (command === undefined) return 'Look at the log of the server.';
      return `Try it by hand: ${[command, ...args].join(' ')}. It gets only a few variables of the environment; add others with env in ${at}.`;
    case 'unauthorized':
      return headers === undefined
        ? `Sign in with: treadle mcp login ${name}`
        : `Check the value of ${Object.values(headers).join(', ')}, which headers_env in ${at} names.`;
    case 'unreachable':
      return unreachableRemedy(systemCodes(error), at);
    case 'timeout':
      return 'The server is slow or hangs. Restart it, or look at its log.';
    case 'protocol':
      return `Check that url in ${at} is the address of an MCP server over streamable HTTP, or that the program speaks MCP on its standard output and writes its log elsewhere. A server that knows only other versions of the protocol has to be updated.`;
    case 'too-large':
      return `Choose fewer tools with the server's own options.`;
    case 'refused':
    case 'changed':
    case 'aborted':
    case 'closed':
    case undefined:
      return `Correct ${at}, or look at the log of the server.`;
    default:
      return code satisfies never;
  }
}

function unreachableRemedy(codes: readonly string[], at: string): string {
  if (codes.some((code) => TLS.test(code))) {
    return 'Its certificate is not trusted. If it is your own, set NODE_EXTRA_CA_CERTS to a file with the certificate of its authority.';
  }
  if (codes.includes('ENOTFOUND') || codes.includes('EAI_AGAIN'))
    return `There is no such host. Correct url in ${at}, or check the network.`;
  if (codes.includes('ECONNREFUSED')) return `Nothing listens there. Start the server, or correct url in ${at}.`;
  return `Check that the server runs, and url in ${at}.`;
}

/** The codes of an error and its causes, such as `ECONNREFUSED`. */
function systemCodes(error: unknown): readonly string[] {
  const codes: string[] = [];
  for (let at = error as NodeJS.ErrnoException | undefined, depth = 0; at && depth < 8; depth++) {
    if (typeof at.code === 'string') codes.push(at.code);
    const inner = (at as { readonly errors?: readonly unknown[] }).errors?.[0];
    at = (at.cause ?? inner) as NodeJS.ErrnoException | undefined;
  }
  return codes;
}

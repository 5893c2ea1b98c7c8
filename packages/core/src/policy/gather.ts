import { messageOf } from '../errors.ts';
import { parseAddress, rangeOf } from './addresses.ts';
import type { Analysers, CommandFacts, PathFacts, PlaceAnalysers, UrlFacts } from './facts.ts';
import { placeText } from './places.ts';
import type { JudgedCall, Place, Touch } from './port.ts';
import type { CallFacts, Located, TouchedCommand, TouchedPath, TouchedSession, TouchedUrl } from './rule.ts';
import { touchFrom } from './touches.ts';

/* Facts about a call: what the analysers find out about everything that it would touch. */

/**
 * Never rejects: if something cannot be found out, the facts have a `problem`. `readable`: folders of this machine that the run
 * may read.
 */
export async function gatherFacts(
  call: JudgedCall,
  analysers: KnownAnalysers,
  readable: readonly string[] = [],
): Promise<CallFacts> {
  const { input: _, ...known } = call;
  const clients = call.client && call.touches === undefined;
  const facts = { call: known, unknown: false, clients, ...UNTOUCHED };
  if (clients) return facts;
  try {
    return { ...facts, ...(await touchedBy(call.touches ?? UNKNOWN, analysers, readable)) };
  } catch (thrown) {
    return { ...facts, call: { ...known, touches: UNKNOWN }, unknown: true, problem: messageOf(thrown) };
  }
}

const UNKNOWN: readonly Touch[] = [{ type: 'unknown' }];
const UNTOUCHED = { paths: [], commands: [], urls: [], places: [], sessions: [] };

/** The analysers of this machine, and those of other places if there are any. */
export type KnownAnalysers = Finders & Pick<Analysers, 'place'>;

type Touched = Pick<CallFacts, 'paths' | 'commands' | 'urls' | 'places' | 'sessions' | 'unknown'>;

/** How to find out about what is at one place. */
type Finders = Omit<Required<Analysers>, 'place'>;

/** A place where something is touched: this machine, if `located` is empty. */
interface Site {
  readonly located: Located;
  readonly find: Finders;
}

async function touchedBy(
  touches: readonly Touch[],
  analysers: KnownAnalysers,
  readable: readonly string[],
): Promise<Touched> {
  const paths: TouchedPath[] = [];
  const commands: TouchedCommand[] = [];
  const urls: TouchedUrl[] = [];
  const sessions: TouchedSession[] = [];
  const sites = new Map<string, Site>();
  const here: Site = { located: HERE, find: analysers };
  let unknown = false;
  const siteOf = async (on: Place): Promise<Site> => {
    const key = `${on.type}:${on.name}`;
    const known = sites.get(key) ?? siteAt(on, await analysers.place?.(on));
    sites.set(key, known);
    return known;
  };
  const addPath = async (site: Site, type: 'read' | 'write', given: string, lines?: number): Promise<unknown> => {
    const facts = checkedPath(await site.find.path(given));
    const within = type === 'read' && site === here ? readable.find((folder) => isBelow(folder, facts)) : undefined;
    return paths.push({
      type,
      given,
      facts,
      ...site.located,
      ...(lines !== undefined && { lines }),
      ...(within !== undefined && { readable: within }),
    });
  };
  const addUrl = async (site: Site, given: string, bytes?: number): Promise<unknown> => {
    const facts = checkedUrl(await site.find.url(given));
    return urls.push({ given, facts, ...site.located, ...(bytes !== undefined && { bytes }) });
  };
  for (const value of touches) {
    const touch = touchFrom(value);
    if (!touch) throw new Error(`the touch ${JSON.stringify(value)} is malformed`);
    const site = 'on' in touch && touch.on ? await siteOf(touch.on) : here;
    switch (touch.type) {
      case 'read':
        await addPath(site, 'read', touch.path);
        break;
      case 'write':
        await addPath(site, 'write', touch.path, touch.lines);
        break;
      case 'url':
        await addUrl(site, touch.url, touch.bytes);
        break;
      case 'command': {
        const about = readable.length > 0 && site === here ? [{ readable }] : [];
        const facts = checkedCommand(await site.find.command(touch.command, ...about));
        commands.push({ command: touch.command, facts, ...site.located });
        for (const { type, path } of facts.touches) await addPath(site, type, path);
        for (const url of facts.urls) await addUrl(site, url);
        break;
      }
      case 'session':
        sessions.push({ session: touch.session, ...(touch.on && { on: touch.on }) });
        break;
      case 'device':
        await siteOf({ type: 'device', name: touch.device });
        break;
      case 'unknown':
        unknown = true;
        break;
      default:
        touch satisfies never;
    }
  }
  return { paths, commands, urls, sessions, places: [...sites.values()].map(({ located }) => located.on!), unknown };
}

const HERE: Located = {};

/** Whether a path is the folder or below it, and leads there too. */
function isBelow(folder: string, { path, target = path }: PathFacts): boolean {
  return folder.length > 1 && [path, target].every((one) => one === folder || one.startsWith(`${folder}/`));
}

/** Nothing at another place is ever looked up on this machine. */
function siteAt(on: Place, known: PlaceAnalysers | undefined): Site {
  if (known === undefined) return { located: { on }, find: textAnalysers(undefined) };
  const { folder, home, ...find } = known;
  if (typeof folder !== 'string' || !folder.startsWith('/') || !isTextOrAbsent(home)) {
    throw new Error(`the folder of ${placeText(on)} is not an absolute path`);
  }
  const folders = { folder, ...(home !== undefined && { home }) };
  return { located: { on, folders }, find: { ...textAnalysers(folder), ...find } };
}

/* Analysers may be code of the user, and a rule must not misread what they return. */

function checkedPath(facts: PathFacts): PathFacts {
  const { path, target, unclear } = facts;
  if (typeof path === 'string' && isTextOrAbsent(target) && isTextOrAbsent(unclear)) return facts;
  throw new Error('the analyser of paths returned something else than facts');
}

function checkedUrl(facts: UrlFacts): UrlFacts {
  const { scheme, host, port, unclear } = facts;
  const isFacts = typeof scheme === 'string' && typeof host === 'string' && typeof port === 'number';
  if (isFacts && isTextOrAbsent(unclear)) return facts;
  throw new Error('the analyser of URLs returned something else than facts');
}

function checkedCommand(facts: CommandFacts): CommandFacts {
  const { programs, touches, urls, unclear, unchecked, readsPrivate, destructive } = facts;
  const isFacts =
    Array.isArray(programs) &&
    programs.every(({ name, args }) => typeof name === 'string' && Array.isArray(args)) &&
    Array.isArray(touches) &&
    touches.every(({ type, path }) => (type === 'read' || type === 'write') && typeof path === 'string') &&
    Array.isArray(urls) &&
    urls.every((url) => typeof url === 'string');
  if (isFacts && [unclear, unchecked, readsPrivate, destructive].every(isTextOrAbsent)) return facts;
  throw new Error('the analyser of commands returned something else than facts');
}

function isTextOrAbsent(value: unknown): boolean {
  return value === undefined || typeof value === 'string';
}

/* The default analysers know only the text. */

export function textAnalysers(folder: string | undefined): Finders {
  return { command: plainCommand, path: (path) => lexicalPath(path, folder), url: plainUrl };
}

/** Only plain words are understood: programs that run others, and what arguments mean, need `@treadle/tools`. */
function plainCommand(command: string): CommandFacts {
  const words = command.trim().split(/[ \t]+/);
  const [name = '', ...args] = words;
  const nothing = { programs: [], touches: [], urls: [] };
  if (!/^[\w./:@%+,=\- \t]+$/.test(command))
    return { ...nothing, unclear: 'it has shell syntax, quotes or special characters' };
  if (name === '' || name.includes('=')) return { ...nothing, unclear: 'it does not start with a program' };
  const problem = RUNS_OTHERS.has(name.slice(name.lastIndexOf('/') + 1)) && `"${name}" runs other programs or code`;
  return { ...nothing, programs: [{ name, args }], ...(problem && { unclear: problem }) };
}

const RUNS_OTHERS: ReadonlySet<string> = new Set(
  (
    'sh bash dash zsh ksh fish env xargs find sudo doas su nohup timeout time nice ionice stdbuf setsid watch parallel eval ' +
    'exec command builtin source . trap ssh awk gawk mawk nawk perl python python3 ruby node deno bun php lua rm dd mkfs'
  ).split(' '),
);

function lexicalPath(path: string, folder: string | undefined): PathFacts {
  const unclear = path === '' ? 'it is empty' : path.includes('\0') ? 'it contains a NUL' : undefined;
  if (unclear !== undefined) return { path, unclear };
  if (path.startsWith('~')) return { path, unclear: 'it starts with "~"' };
  const whole = path.startsWith('/') || folder === undefined ? path : `${folder}/${path}`;
  const components: string[] = [];
  for (const part of whole.split('/')) {
    if (part === '' || part === '.') continue;
    if (part !== '..') components.push(part);
    else if (components.pop() === undefined && !whole.startsWith('/')) return { path, unclear: 'it leaves the folder' };
  }
  return { path: `${whole.startsWith('/') ? '/' : ''}${components.join('/')}` };
}

const PORTS: Readonly<Record<string, number>> = { http: 80, https: 443, ws: 80, wss: 443, ftp: 21, ssh: 22, git: 9418 };

export function plainUrl(text: string): UrlFacts {
  const url = URL.parse(text);
  if (!url) return { scheme: '', host: '', port: 0, unclear: 'it is not an absolute URL' };
  const scheme = url.protocol.slice(0, -1);
  const host = url.hostname
    .toLowerCase()
    .replace(/^\[(.*)\]$/, '$1')
    .replace(/\.$/, '');
  const port = url.port === '' ? (PORTS[scheme] ?? 0) : Number(url.port);
  const address = parseAddress(host);
  const isLocal = host === 'localhost' || host.endsWith('.localhost');
  const range = address ? rangeOf(address) : isLocal ? 'loopback' : undefined;
  const hasCredentials = url.username !== '' || url.password !== '';
  return {
    scheme,
    host,
    port,
    ...(range && { range }),
    ...(hasCredentials && { unclear: 'it contains credentials' }),
  };
}

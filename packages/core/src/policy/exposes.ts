import type { Exposure } from '../machine/exposure.ts';
import { privateReads } from './private.ts';
import type { JudgedCall, TouchExposure } from './port.ts';
import type { CallFacts, Folders, TouchedCommand } from './rule.ts';
import type { PolicyRules } from './rules.ts';

/*
 * What a touch exposes a run to, by what is known about it: reads of private paths, also by commands, and commands that fetch
 * something.
 *
 * 1. Lists change nothing: a private path that `paths.read` allows is still private.
 * 2. A command that cannot be analysed counts by what its text names, because ordinary work has many of them. In a sandbox that
 *    keeps a promise it cannot have seen what that one hides.
 * 3. If the facts cannot be found out, everything.
 */

type Kind = keyof Exposure;
const BOTH: readonly Kind[] = ['outside', 'private'];

export function touchExposure(
  rules: PolicyRules,
  here: Folders,
  gathered: (call: JudgedCall, narrowedBy: readonly string[] | undefined) => Promise<CallFacts>,
): TouchExposure {
  const privateGlob = privateReads(rules.private ? { private: rules.private } : {}, here);
  const exposed = async (call: JudgedCall, narrowedBy: readonly string[] | undefined): Promise<readonly Kind[]> => {
    const { problem, paths, commands, urls } = await gathered(call, narrowedBy);
    if (problem !== undefined) return BOTH;
    const isVisible = (promise: string): boolean => !call.sandbox?.includes(promise);
    const named = commands
      .filter(isUnclear)
      .flatMap(({ command, ...located }) =>
        wordsOf(command).map((path) => ({ ...located, type: 'read' as const, given: path, facts: { path } })),
      );
    const readsPrivate =
      paths.some((path) => privateGlob(path) !== undefined) ||
      (isVisible('private') &&
        (commands.some(({ facts }) => facts.readsPrivate !== undefined) ||
          named.some((path) => privateGlob(path) !== undefined)));
    const fetches =
      isVisible('network') &&
      (urls.length > 0 || commands.some((one) => one.facts.programs.some(isFetcher) || namesAddress(one)));
    return [...(fetches ? (['outside'] as const) : []), ...(readsPrivate ? (['private'] as const) : [])];
  };
  return (touch, { sandbox, narrowedBy }) =>
    touch.type === 'read' || touch.type === 'command'
      ? exposed({ ...TOUCHING, touches: [touch], sandbox }, narrowedBy)
      : undefined;
}

const TOUCHING: Omit<JudgedCall, 'touches' | 'sandbox'> = {
  id: '',
  name: '',
  input: {},
  effect: 'once',
  client: false,
  permissions: [],
  operation: undefined,
};

function isUnclear({ facts: { unclear, unchecked } }: TouchedCommand): boolean {
  return unclear !== undefined || unchecked !== undefined;
}

/** Whatever could be a path in a text, such as `.npmrc` in `python3 -c "open('.npmrc')"`. */
function wordsOf(text: string): readonly string[] {
  return [...new Set(text.split(/[^\p{L}\p{N}._/~@+-]+/u))].filter((word) => word !== '');
}

function namesAddress(command: TouchedCommand): boolean {
  return isUnclear(command) && command.command.includes('://');
}

/** Programs that print or store what other hosts send; with words: only these first ones. */
const FETCHERS: ReadonlyMap<string, string> = new Map(
  Object.entries({
    curl: '',
    wget: '',
    ssh: '',
    scp: '',
    sftp: '',
    rsync: '',
    ftp: '',
    nc: '',
    telnet: '',
    gh: '',
    git: 'clone fetch ls-remote pull push submodule',
    npm: 'add audit ci exec i install outdated search show update view',
    npx: '',
    pnpm: 'add audit dlx i install outdated update view',
    yarn: 'add audit dlx info install outdated upgrade',
    pip: 'download index install',
    pip3: 'download index install',
    uv: 'add pip sync',
    cargo: 'add fetch install search update',
    go: 'get install',
    gem: 'install search update',
    bundle: 'install update',
    composer: 'install require search update',
    'apt-get': 'download install update upgrade',
    apt: 'install search show update upgrade',
    docker: 'pull push search',
    podman: 'pull push search',
  }),
);

function isFetcher({ name, args }: { readonly name: string; readonly args: readonly (string | undefined)[] }): boolean {
  const words = FETCHERS.get(name.slice(name.lastIndexOf('/') + 1));
  if (words === undefined) return false;
  return words === '' || args.some((arg) => arg !== undefined && words.split(' ').includes(arg));
}

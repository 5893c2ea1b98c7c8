import type { Exposure } from '../machine/exposure.ts';
import type { Autonomy } from '../machine/narrowing.ts';
import type { CommandFacts, PathFacts, UrlFacts } from './facts.ts';
import type { JudgedCall, Place, Placed, Principal } from './port.ts';

/** In the order in which they are evaluated. `facts` is about what could not be found out, and comes before all. */
export type RuleName =
  | 'facts'
  | 'allowed'
  | 'rate'
  | 'autonomy'
  | 'scopes'
  | 'permissions'
  | 'commands'
  | 'paths'
  | 'private'
  | 'domains'
  | 'devices'
  | 'sessions'
  | 'exposure'
  | 'tools';

/** One rule of a policy, for given `PolicyRules`. Both functions are pure. */
export interface Rule {
  readonly name: RuleName;
  /** Undefined: the rule has no opinion on the call. */
  judge(facts: CallFacts, context: RuleContext): Opinion | undefined;
  /** What the rule looks at, in words. Only for explanations. */
  saw(facts: CallFacts, context: RuleContext): string;
}

/** The reason of a denial is for the model: it says what would be allowed. */
export type Opinion =
  | { readonly type: 'allow' }
  | { readonly type: 'deny'; readonly reason: string }
  /** `unclear`: only because a command could not be analysed. */
  | { readonly type: 'ask'; readonly reason: string; readonly unclear?: true };

export const ALLOWED: Opinion = { type: 'allow' };

/** What is known about a call before the rules judge it. Plain JSON. */
export interface CallFacts {
  readonly call: Omit<JudgedCall, 'input'>;
  /** Why the facts are incomplete. The call is denied. */
  readonly problem?: string;
  /** With those that its commands would read and write. */
  readonly paths: readonly TouchedPath[];
  readonly commands: readonly TouchedCommand[];
  /** With those that its commands would request. */
  readonly urls: readonly TouchedUrl[];
  /** Places other than this machine that it uses, each once: devices, and where the other things are. */
  readonly places: readonly Place[];
  readonly sessions: readonly TouchedSession[];
  /** Nobody knows what it touches. */
  readonly unknown: boolean;
  /** The client executes the call, and its tool does not declare what it touches. Only rules that name the tool apply. */
  readonly clients: boolean;
}

/** Where something is that a call touches. */
export interface Located extends Placed {
  /** The folders of a place other than this machine. Absent there: nobody knows anything about the place. */
  readonly folders?: Folders;
}

/** Where relative globs start. */
export interface Folders {
  readonly folder?: string;
  /** What `~/` stands for in globs. */
  readonly home?: string;
}

export interface TouchedPath extends Located {
  readonly type: 'read' | 'write';
  /** As the tool declares it. */
  readonly given: string;
  readonly facts: PathFacts;
  readonly lines?: number;
  /** The folder that it is in, by its name and by where it leads, which the run may read (`readable` of the options). */
  readonly readable?: string;
}

export interface TouchedCommand extends Located {
  readonly command: string;
  readonly facts: CommandFacts;
}

export interface TouchedUrl extends Located {
  readonly given: string;
  readonly facts: UrlFacts;
  readonly bytes?: number;
}

export interface TouchedSession extends Placed {
  readonly session: string;
}

/** What else a rule judges by. Plain JSON. */
export interface RuleContext {
  /** Lowers the level of the rules. */
  readonly autonomy?: Autonomy;
  /** The sources of what narrows the run. */
  readonly narrowedBy?: readonly string[];
  readonly principal?: Principal;
  /** The tools that the run may call. Absent: all. */
  readonly allowed?: readonly string[];
  /** Calls of the subject before this one. Absent: rates do not apply. */
  readonly rate?: RateCounts;
  /** Paths that calls of the run may have written, with those of earlier calls of the turn. */
  readonly written?: readonly string[];
  /** What the run has seen, with the causes. */
  readonly exposure?: Exposure;
}

export interface RateCounts {
  readonly second: number;
  readonly minute: number;
}

/** What the lists say about one thing that a call touches. The autonomy rule asks them too, so opinions are kept. */
export interface ListJudges {
  readonly path: Judge<TouchedPath>;
  readonly command: Judge<TouchedCommand>;
  readonly url: Judge<TouchedUrl>;
  readonly place: Judge<Place>;
  readonly session: Judge<TouchedSession>;
}

export type Judge<T extends object> = (touched: T) => Opinion | undefined;

export function keptOpinions<T extends object>(judge: Judge<T>): Judge<T> {
  const kept = new WeakMap<T, { readonly opinion: Opinion | undefined }>();
  return (touched) => {
    const known = kept.get(touched);
    if (known) return known.opinion;
    const opinion = judge(touched);
    kept.set(touched, { opinion });
    return opinion;
  };
}

/**
 * The opinion on several things together: the strictest; of equals the first. It is `allow` only if each is allowed: if there
 * is no opinion on one of them, there is none on all.
 */
export function jointOpinion(opinions: readonly (Opinion | undefined)[]): Opinion | undefined {
  let strictest: Opinion | undefined;
  for (const one of opinions) {
    if (one && (!strictest || STRICTNESS[one.type] > STRICTNESS[strictest.type])) strictest = one;
  }
  return strictest?.type === 'allow' && opinions.includes(undefined) ? undefined : strictest;
}

export const STRICTNESS: Readonly<Record<Opinion['type'], number>> = { allow: 0, ask: 1, deny: 2 };

/** Names in a sentence: `"a", "b" and 3 more`. */
export function listed(names: readonly string[], most = 5): string {
  const shown = names.slice(0, most).map((name) => JSON.stringify(name));
  return names.length > most ? `${shown.join(', ')} and ${names.length - most} more` : shown.join(', ');
}

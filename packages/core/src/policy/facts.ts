import type { Place } from './port.ts';

/*
 * Facts: what is known about a command, a path or a URL that a call would touch. Rules are pure functions of facts. The
 * default analysers know only the text; those of `@treadle/tools` know the shell grammar, the file system and addresses.
 */

/** Finds out facts. A field that is absent has a default that knows only the text. An analyser that throws means a denial. */
export interface Analysers {
  /** `readable`: folders that the run may read, so that nothing in them is private for where they are. */
  command?(command: string, about?: { readonly readable: readonly string[] }): CommandFacts | Promise<CommandFacts>;
  path?(path: string): PathFacts | Promise<PathFacts>;
  url?(url: string): UrlFacts | Promise<UrlFacts>;
  /**
   * Finds out facts at another place than this machine. Undefined: nobody can. What a call touches there is then judged by its
   * text, which can only deny it: otherwise people are asked, at every level. Absent: the same for all places.
   */
  place?(place: Place): PlaceAnalysers | undefined | Promise<PlaceAnalysers | undefined>;
}

/** The analysers of a place. */
export interface PlaceAnalysers extends Omit<Analysers, 'place'> {
  /** The absolute path of the folder at that place where relative paths and globs of the rules start. */
  readonly folder: string;
  /** What `~/` stands for in globs there. */
  readonly home?: string;
}

/** What a shell command would do. */
export interface CommandFacts {
  /** Every program that would run, at any depth: in pipes, substitutions, and as an argument of a wrapper such as `env`. */
  readonly programs: readonly Program[];
  /** Paths that it would read or write by redirections and by the arguments of programs that are known. */
  readonly touches: readonly { readonly type: 'read' | 'write'; readonly path: string }[];
  /** URLs that programs which are known would request. */
  readonly urls: readonly string[];
  /** Why it cannot be analysed completely, such as a computed command name. It is never guessed: people are asked. */
  readonly unclear?: string;
  /** Why it was not analysed to its end, such as its length. It is denied at every level. */
  readonly unchecked?: string;
  /** A private file in a folder that it would read as a whole. It is then unclear too. */
  readonly readsPrivate?: string;
  /** Why it destroys something, such as `rm -rf /`. It is denied at every level. */
  readonly destructive?: string;
}

/** A program with its arguments, after quotes are removed. `undefined` for an argument that is computed. */
export interface Program {
  readonly name: string;
  readonly args: readonly (string | undefined)[];
  /** The analyser does not know what its arguments mean. An entry of a single word does not allow them. */
  readonly unknown?: true;
}

/** Where a path leads. */
export interface PathFacts {
  /** Absolute, without `.` and `..`, with `/` between components. */
  readonly path: string;
  /** Where it leads through links, if that is another place. Rules apply to both. */
  readonly target?: string;
  /** Why it cannot be known where it leads, such as a NUL in it. It is denied. */
  readonly unclear?: string;
}

/** Where a request goes. */
export interface UrlFacts {
  /** Without the colon. */
  readonly scheme: string;
  /** In lower case and ASCII, without a trailing dot; an address in its usual form, without brackets. */
  readonly host: string;
  readonly port: number;
  /** The kind of the address, if the host is one. Everything but `public` is denied unless it is listed. */
  readonly range?: AddressRange;
  /** Why the request cannot be judged, such as a malformed URL or credentials in it. It is denied. */
  readonly unclear?: string;
}

export type AddressRange = 'public' | 'private' | 'loopback' | 'link-local' | 'multicast' | 'metadata' | 'reserved';

import type { Autonomy } from '../machine/narrowing.ts';

/** The rules of a policy: plain JSON, the same in code and in `[policy]` of treadle.toml. */
export interface PolicyRules {
  /** 0: read only, 1: supervised, 2: bounded, 3: full. Default: 1. */
  readonly autonomy?: Autonomy;
  /** By `tool:operation`, `tool:*`, `tool` or `*`; the most specific entry decides. */
  readonly tools?: Readonly<Record<string, 'allow' | 'ask' | 'deny'>>;
  /** The permissions that are held. Absent: all. A permission that is not named is held. */
  readonly permissions?: Readonly<Partial<Record<Permission, boolean>>>;
  /** Commands by their first words, such as `git status` or `npm run *`; the most specific entry decides. */
  readonly commands?: Lists;
  /** Globs. A relative one starts at the folder of the policy. */
  readonly paths?: {
    readonly read?: readonly string[];
    readonly write?: readonly string[];
    readonly deny?: readonly string[];
    /** What is denied for paths that no list has, instead of being left to the level: reads, writes, or both. */
    readonly only?: readonly ('read' | 'write')[];
  };
  /** Paths that are read only after asking, below level 3, in addition to those that are private without being named. */
  readonly private?: {
    readonly paths?: readonly string[];
    /** Globs of paths that are not private after all. */
    readonly except?: readonly string[];
  };
  /** Hosts (`example.com`, `*.example.com`), with a port or not, and CIDR ranges of addresses. */
  readonly domains?: Lists;
  /** Devices by name, and other places by type and name, such as `ssh:build`; `*` at the end stands for any rest. */
  readonly devices?: Lists;
  /** Sessions by name; `*` at the end stands for any rest. */
  readonly sessions?: Lists;
  /** What a sandbox has to be, and what it shows. */
  readonly sandbox?: {
    /** The promises that a sandbox has to keep before commands in it need no approval at level 2. */
    readonly require?: readonly string[];
    /** Private files that programs in it may read: globs from the folder of the policy, or paths outside of it. */
    readonly expose?: readonly string[];
    /** Programs in it reach the hosts that `domains.allow` names. Default: no network. */
    readonly network?: boolean;
  };
  /**
   * What happens to calls that could carry something out, once the run has seen both private data and content from outside.
   * `strict`: they are denied. Default: `ask`.
   */
  readonly exposure?: 'ask' | 'strict';
  readonly rate?: {
    /** Calls of a subject within 60 seconds. Default: 60. */
    readonly minute?: number;
    /** Calls of a subject within one second. Default: 10. */
    readonly second?: number;
  };
  /** What applies to each ask. */
  readonly approvals?: {
    readonly minutes?: number;
    readonly required?: number;
    readonly approvers?: readonly string[];
  };
}

export type Permission = 'file_read' | 'file_write' | 'shell' | 'network' | 'git' | 'session';

export interface Lists {
  readonly allow?: readonly string[];
  readonly ask?: readonly string[];
  readonly deny?: readonly string[];
}

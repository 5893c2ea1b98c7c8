import type { HttpBindings } from '@hono/node-server';
import type { Logger } from 'pino';

/** Who sent a request. */
export interface Caller {
  /** What this caller may see belongs to it. */
  readonly tenant: string;
  /** The name of its key; empty where the server has no keys. */
  readonly key: string;
  readonly scopes: readonly string[];
  /** Also in the answer, as `x-request-id`, and in every line that `log` writes. */
  readonly requestId: string;
  readonly log: Logger;
}

/** What routes find in their context. Streams are written to `c.env.outgoing`. */
export type Env = { Bindings: HttpBindings; Variables: { caller: Caller } };

import type { Tool } from '@treadle/core';
import type { Logger } from 'pino';
import { chatRoutes } from './chat/routes.ts';
import { checkOptions } from './check-options.ts';
import { engine, type ServerStore } from './engine/engine.ts';
import type { ServedModels } from './engine/models.ts';
import { retain } from './engine/retention.ts';
import { modelsRoutes } from './engine/routes.ts';
import type { ToolExecutor } from './executors/executor.ts';
import { OWN_LABEL, registeredTools } from './executors/registered.ts';
import type { ApiKey } from './http/keys.ts';
import { newLog } from './http/log.ts';
import { runLimit } from './http/run-limit.ts';
import { DEFAULT_LIMITS } from './responses/limits.ts';
import { responses } from './responses/responses.ts';
import { responsesRoutes } from './responses/routes.ts';
import { createServer } from './server.ts';

export interface TreadleServerOptions {
  readonly models: ServedModels;
  readonly store: ServerStore;
  /** Run on the server. Clients ask for them by the `server_label` "treadle". */
  readonly tools?: readonly Tool[];
  /** Run further kinds of tools on the server. */
  readonly executors?: readonly ToolExecutor[];
  /** Names of `tools` that every request is offered; default none. */
  readonly defaultTools?: readonly string[];
  /** Default 127.0.0.1. Beyond loopback it needs keys. */
  readonly host?: string;
  /** Default 3210; 0 for any that is free. */
  readonly port?: number;
  readonly keys?: readonly ApiKey[];
  /** Origins of web pages that may use the server from a browser; default none. */
  readonly corsOrigins?: readonly string[];
  /** Of each key that has no limit of its own, and of each address where there are no keys; default: no limit. */
  readonly requestsPerMinute?: number;
  /** Default 1,000. */
  readonly maxConcurrentRuns?: number;
  /** Of those, for one tenant; default: all of them. */
  readonly maxConcurrentRunsPerTenant?: number;
  /** All clients see the status `requires_action`; default: those who ask for it. */
  readonly requiresAction?: boolean;
  /** Model calls of one response; default 10. */
  readonly maxTurns?: number;
  /** Of one response; default 10 minutes. */
  readonly maxDurationMs?: number;
  /** For tools that set none of their own; default one minute. */
  readonly toolTimeoutMs?: number;
  /** Turns in a row with nothing but errors; default 3, 0 is off. */
  readonly errorLimit?: number;
  /** Between two signs of life in a stream that has nothing to say; default 15 seconds. */
  readonly heartbeatMs?: number;
  /** Default 32 MB, so that images and files have room. */
  readonly maxBodyBytes?: number;
  /** How long responses are kept after they ended or paused; default 30 days, 0 is for ever. */
  readonly retentionMs?: number;
  readonly log?: Logger;
}

export interface TreadleServer {
  /** Rejects with what to do if the host or the port cannot be used. `recovered`: responses that it goes on with. */
  listen(): Promise<{ readonly url: string; readonly port: number; readonly recovered: number }>;
  /** Takes no more requests, waits up to `graceMs` (10 s) for those that run, and leaves the rest for the next start. */
  close(graceMs?: number): Promise<void>;
}

/** How often it looks for responses that a process has left. */
const RECOVER_MS = 30_000;

/** An OpenAI-compatible server on Treadle's loop. Throws for options that cannot work. The store stays the caller's. */
export function treadleServer(options: TreadleServerOptions): TreadleServer {
  const { models, store, tools = [], executors = [], defaultTools = [], log = newLog() } = options;
  const { heartbeatMs = 15_000, maxBodyBytes = 32 * 1024 * 1024, requiresAction = false } = options;
  const { retentionMs = 30 * 24 * 3_600_000, maxConcurrentRunsPerTenant: perTenant } = options;
  checkOptions(options);
  const base = engine({
    models,
    store,
    offer: { executors: [registeredTools(tools), ...executors], defaultTools },
    limits: {
      maxTurns: options.maxTurns ?? 10,
      maxDurationMs: options.maxDurationMs ?? 600_000,
      toolTimeoutMs: options.toolTimeoutMs ?? 60_000,
      errorLimit: options.errorLimit ?? 3,
    },
    admission: runLimit({
      runs: options.maxConcurrentRuns ?? 1_000,
      ...(perTenant !== undefined && { runsPerTenant: perTenant }),
    }),
    log,
  });
  const answers = responses(base);
  const limits = { ...DEFAULT_LIMITS, ...(defaultTools.length > 0 && { labels: [OWN_LABEL] }) };
  const face = { limits, maxBodyBytes, heartbeatMs };
  const { host, port, keys, corsOrigins: cors, requestsPerMinute } = options;
  const server = createServer({
    ...(host !== undefined && { host }),
    ...(port !== undefined && { port }),
    ...(keys && { keys }),
    ...(cors && { cors }),
    ...(requestsPerMinute !== undefined && {
      limits: { requestsPerMinute, requestsPerMinutePerAddress: requestsPerMinute },
    }),
    log,
    routes: (app) =>
      void app
        .route('/v1', responsesRoutes({ ...face, responses: answers, requiresAction }))
        .route('/v1', chatRoutes({ ...face, engine: base }))
        .route('/v1', modelsRoutes(models, Math.floor(Date.now() / 1000))),
    ready: async () => void (await store.list({ limit: 1 })),
    drain: () => base.runs.leaveAll(),
  });

  function beginChores(): () => void {
    const noted = (error: unknown): void => log.error({ err: error }, 'could not look for responses that were left');
    const stopTidying = retentionMs > 0 ? retain(store.responses, retentionMs, log) : undefined;
    // What others on the same store leave behind when they die.
    const recovering = setInterval(() => void answers.recover().catch(noted), RECOVER_MS).unref();
    return () => {
      stopTidying?.();
      clearInterval(recovering);
    };
  }

  let listening: ReturnType<TreadleServer['listen']> | undefined;
  let isClosed = false;
  let endChores = (): void => {};

  async function open(): ReturnType<TreadleServer['listen']> {
    const place = await server.listen();
    try {
      const recovered = await answers.recover();
      if (!isClosed) endChores = beginChores();
      return { ...place, recovered };
    } catch (error) {
      await server.close(0);
      throw error;
    }
  }

  return {
    listen: () => (listening ??= open()),
    close(graceMs) {
      isClosed = true;
      endChores();
      return server.close(graceMs);
    },
  };
}

import {
  registry,
  textOf,
  tool,
  type ErrorFacts,
  type JsonSchema,
  type Schema,
  type SettledResult,
  type StandardSchema,
  type Tool,
  type ToolContext,
} from '@treadle/core';
import { TIMEOUTS } from '../call-limits.ts';
import { matchPattern } from '../patterns.ts';

/*
 * Calls that run in the background: the call returns a handle, and the tool goes on working. What it reports is its output.
 *
 * 1. A job has no time limit. It ends by itself, when it is stopped, or when the run is not driven any more, unless the next
 *    run of the conversation gets it.
 * 2. A handle is unique among those jobs, and in its run, also after a resume. What was started before the resume is gone, and
 *    reading it says so.
 * 3. A job can hold resources only until the call has returned, and cannot ask questions or change the memory of the run.
 */

const MAX_RUNNING = 8;
/** Jobs that have ended are kept, so that their results can be read. */
const MAX_ENDED = 32;
/** The last characters of the output that are kept for each job. */
const MAX_KEPT_CHARS = 256 * 1024;
/** Characters of one read. Below the limit of the loop for a result. */
const PAGE_CHARS = 10_000;
/** A job that ends within this time is seen to end by the call that starts it. */
const START_MS = 50;
const STOP_MS = 10_000;
const MAX_WAIT_MS = 60_000;
/** The longest time that a timer takes. */
const NO_LIMIT_MS = 2 ** 31 - 1;

/** What a tool can do in the background. */
export interface JobPort {
  /** The call that starts the job does not return before this settles. Call it before the first `await`. */
  waitFor(start: Promise<unknown>): unknown;
  /** Sets where `background_write` writes. */
  onWrite(input: JobInput): void;
}

interface JobInput {
  readonly write: (text: string) => Promise<void>;
  readonly end: () => void;
}

interface Job {
  readonly handle: string;
  readonly tool: string;
  readonly about: string;
  readonly startedAt: number;
  /** The output, without the first `dropped` characters. */
  output: string;
  dropped: number;
  /** Where the next read starts. */
  readTo: number;
  input: JobInput | undefined;
  result: SettledResult | undefined;
  /** Resolves when there is more output, or the result. */
  changed: PromiseWithResolvers<void>;
  /** Resolves when the tool has returned. */
  readonly ended: Promise<void>;
  readonly stop: AbortController;
}

/** The jobs of a run, and of those before it in its conversation. */
interface Jobs {
  start(made: Tool, input: unknown, context: ToolContext): Promise<Job>;
  get(handle: string): Job;
  list(): readonly Job[];
  /** Nothing was started since they were opened. */
  areNew(): boolean;
  isBusy(): boolean;
  close(): Promise<void>;
}

const ports = new WeakMap<ToolContext, JobPort>();

/** Whether a tool runs in the background. */
export function jobOf(context: ToolContext): JobPort | undefined {
  return ports.get(context);
}

/**
 * Adds the argument `background` to a tool. With it, the call returns a handle for `backgroundTools`, and the tool works on
 * without a time limit.
 */
export function withBackground(made: Tool): Tool {
  const { execute, parameters, input, timeoutMs, touches, resources, operation, needsApproval, verify } = made;
  if (!execute || made.share !== undefined || made.remembers || made.handsTo !== undefined) {
    throw new TypeError(
      `The tool "${made.name}" cannot run in the background: only tools can that are executed here, are not runs of their ` +
        'own, and remember nothing.',
    );
  }
  const { properties = {} } = parameters as { readonly properties?: Readonly<Record<string, unknown>> };
  if ('background' in properties) throw new TypeError(`The tool "${made.name}" already has the argument "background".`);
  const described: JsonSchema = { ...parameters, properties: { ...properties, background: BACKGROUND } };
  const bare = <T>(use: ((given: unknown) => T) | undefined): ((given: unknown) => T) | undefined =>
    use && ((given) => use(withoutBackground(given)));
  return {
    ...made,
    description: `${made.description} Give background: true if it takes longer than its time limit, or does not end.`,
    parameters: described,
    input: '~standard' in input ? standardInput(input as StandardSchema) : described,
    timeoutMs: (given) => {
      if (isBackground(given)) return STOP_MS;
      return typeof timeoutMs === 'function' ? timeoutMs(withoutBackground(given)) : (timeoutMs ?? Number.NaN);
    },
    ...(touches && { touches: bare(touches)! }),
    ...(resources && { resources: bare(resources)! }),
    ...(typeof operation === 'function' && { operation: bare(operation)! }),
    ...(typeof needsApproval === 'function' && { needsApproval: bare(needsApproval)! }),
    ...(verify && { verify: (given: unknown, context: ToolContext) => verify(withoutBackground(given), context) }),
    execute(given, context) {
      const own = withoutBackground(given);
      return isBackground(given) ? startInBackground(made, own, context) : execute(own, context);
    },
  };
}

const BACKGROUND = {
  type: 'boolean',
  description: 'Return a handle at once and keep running, without a time limit. Read its output with background_read',
} as const;

function isBackground(given: unknown): boolean {
  return (given as { readonly background?: unknown }).background === true;
}

function withoutBackground(given: unknown): unknown {
  const { background: _, ...own } = given as Readonly<Record<string, unknown>>;
  return own;
}

/** Validates the other arguments with the schema of the tool. */
function standardInput(schema: StandardSchema): Schema {
  const { vendor, validate } = schema['~standard'];
  return {
    '~standard': {
      version: 1,
      vendor,
      async validate(value: unknown) {
        const background = (value as { readonly background?: unknown } | null)?.background;
        if (background === undefined) return validate(value);
        if (typeof background !== 'boolean')
          return { issues: [{ message: 'must be a boolean', path: ['background'] }] };
        const verdict = await validate(withoutBackground(value));
        return verdict.issues ? verdict : { value: { ...(verdict.value as object), background } };
      },
    },
  };
}

function holdJobs({ hold }: ToolContext): Promise<Jobs> {
  const isBusy = (jobs: Jobs): boolean => jobs.isBusy();
  return hold('background jobs', openJobs, (jobs) => jobs.close(), { isBusy, passes: true }).then(
    ({ resource }) => resource,
  );
}

async function startInBackground(made: Tool, input: unknown, context: ToolContext): Promise<string> {
  const jobs = await holdJobs(context);
  const job = await jobs.start(made, input, context);
  const next = job.result
    ? readJob(job, 0)
    : 'It runs until it ends or until background_stop. It may be stopped when you wait for the user for long: then reading it says so. ' +
      'Read its output with background_read.';
  return `Started in the background as ${job.handle}.\n${next}`;
}

const WHEN_STOPPED = 'when the run paused, was resumed, or nobody had used it for long';

function openJobs(): Jobs {
  const jobs = new Map<string, Job>();
  /** Also of jobs that were dropped: a later run of the conversation may start one in the same turn. */
  const used = new Set<string>();
  const isRunning = ({ result }: Job): boolean => result === undefined;

  function newHandle(base: string): string {
    let handle = base;
    for (let count = 2; used.has(handle); count++) handle = `${base}-${count}`;
    used.add(handle);
    return handle;
  }

  return {
    async start(made, input, context) {
      const running = [...jobs.values()].filter(isRunning);
      if (running.length >= MAX_RUNNING) {
        const handles = running.map(({ handle }) => handle).join(', ');
        throw new BackgroundError(
          `${MAX_RUNNING} jobs already run in the background: ${handles}. Stop one with background_stop first.`,
          'execution_failed',
        );
      }
      const ended = [...jobs.values()].filter((job) => !isRunning(job));
      for (const { handle } of ended.slice(0, Math.max(0, ended.length - MAX_ENDED + 1))) jobs.delete(handle);
      const { job, begun } = startJob(made, input, context, newHandle);
      jobs.set(job.handle, job);
      await begun;
      return job;
    },
    areNew: () => used.size === 0,
    get(handle) {
      const job = jobs.get(handle);
      if (job) return job;
      const known = [...jobs.keys()].join(', ') || 'none';
      throw new BackgroundError(
        `There is no job ${JSON.stringify(shortText(handle, 100))} in the background. If you started it, it was stopped ${WHEN_STOPPED}, or it was dropped after it had ended. Jobs: ${known}. Start it again if you still need it.`,
        'not_found',
      );
    },
    list: () => [...jobs.values()],
    isBusy: () => [...jobs.values()].some(isRunning),
    async close() {
      await Promise.all(Array.from(jobs.values(), stopJob));
    },
  };
}

class BackgroundError extends Error implements ErrorFacts {
  readonly errorType: NonNullable<ErrorFacts['errorType']>;

  constructor(message: string, errorType: BackgroundError['errorType']) {
    super(message);
    this.errorType = errorType;
  }
}

/** `begun`: the tool has started, with the resources that it holds, and has had a moment to end. */
function startJob(
  made: Tool,
  input: unknown,
  context: ToolContext,
  newHandle: (base: string) => string,
): { readonly job: Job; readonly begun: Promise<void> } {
  const ended = Promise.withResolvers<void>();
  const job: Job = {
    handle: newHandle(`${made.name}-${context.key.slice(context.key.lastIndexOf('/') + 1).replace('.tool.', '.')}`),
    tool: made.name,
    about: shortText(JSON.stringify(input), 100),
    startedAt: Date.now(),
    output: '',
    dropped: 0,
    readTo: 0,
    input: undefined,
    result: undefined,
    changed: Promise.withResolvers(),
    ended: ended.promise,
    stop: new AbortController(),
  };
  const starts: Promise<unknown>[] = [];
  const hold: ToolContext['hold'] = (...request) => {
    const held = context.hold(...request);
    starts.push(held);
    return held;
  };
  const { key, lease, context: given, principal, narrowedBy, narrowedRules, offer, traceparent } = context;
  const kept = { key, lease, context: given, principal, narrowedBy, narrowedRules, offer, traceparent };
  const ask = (): Promise<never> => Promise.reject(new Error('A call in the background cannot ask questions.'));
  const execute: Tool['execute'] = (own, { signal, report }) => {
    const inside: ToolContext = { ...kept, signal, report, ask, hold };
    ports.set(inside, { waitFor: (start) => starts.push(start), onWrite: (to) => (job.input = to) });
    const value = made.execute!(own, inside);
    // The result does not wait for a tool that was stopped, so this does.
    void Promise.resolve(value).then(
      () => ended.resolve(),
      () => ended.resolve(),
    );
    return value;
  };
  const only = registry();
  only.register({ ...made, execute }, 'background');
  const settled = only
    .execute(made.name, input, {
      signal: job.stop.signal,
      key,
      timeoutMs: NO_LIMIT_MS,
      matchPattern,
      report: (progress) => addOutput(job, progress),
    })
    .then((result) => {
      job.result = result;
      ended.resolve();
      hasChanged(job);
    });
  const begun = (async () => {
    await Promise.race([settled, later(START_MS)]);
    await Promise.allSettled(starts);
  })();
  return { job, begun };
}

function addOutput(job: Job, progress: unknown): void {
  job.output += typeof progress === 'string' ? progress : `${JSON.stringify(progress)}\n`;
  // Not at each report, because that copies the text.
  if (job.output.length > 2 * MAX_KEPT_CHARS) {
    job.dropped += job.output.length - MAX_KEPT_CHARS;
    job.output = job.output.slice(-MAX_KEPT_CHARS);
  }
  hasChanged(job);
}

function hasChanged(job: Job): void {
  job.changed.resolve();
  job.changed = Promise.withResolvers();
}

async function stopJob(job: Job): Promise<void> {
  if (job.result) return;
  job.stop.abort();
  await Promise.race([job.ended, later(STOP_MS)]);
}

/** A timer that does not keep the process alive. */
function later(ms: number): Promise<void> {
  return new Promise((done) => void setTimeout(done, ms).unref());
}

function shortText(text: string, max: number): string {
  return (text.length <= max ? text : `${text.slice(0, max)}…`).toWellFormed();
}

function totalOf({ dropped, output }: Job): number {
  return dropped + output.length;
}

/** A page of the output. The result follows when the output was read to its end. */
function readJob(job: Job, offset: number): string {
  const total = totalOf(job);
  const from = Math.min(Math.max(offset, job.dropped), total);
  const page = job.output.slice(from - job.dropped, from - job.dropped + PAGE_CHARS).toWellFormed();
  const to = from + page.length;
  job.readTo = to;
  const lost = from > offset ? [`[${from - offset} characters before this were dropped]`] : [];
  const more = to < total ? [`[${total - to} more characters: read again with offset ${to}]`] : [];
  const end = to < total ? [] : [statusText(job), ...(job.result ? [resultText(job.result)] : [])];
  return [...lost, ...(page === '' ? [] : [page.replace(/\n$/, '')]), ...more, ...end].join('\n');
}

function statusText(job: Job): string {
  const { handle, result } = job;
  if (!result) return `[${handle} is running; it has printed ${totalOf(job)} characters]`;
  const how = 'isError' in result && result.isError ? 'failed' : 'ended';
  return `[${handle} has ${how}. Result:]`;
}

function resultText(result: SettledResult): string {
  return result.type === 'result' ? shortText(textOf(result.content), PAGE_CHARS) : '';
}

const HANDLE = {
  type: 'string',
  minLength: 1,
  description: 'The handle that the call with background: true returned',
} as const;

/** Tools to list, read, write to and stop what runs in the background. */
export function backgroundTools(): readonly Tool[] {
  return [
    tool({
      name: 'background_list',
      description: 'List what runs or has run in the background, with handles.',
      input: { type: 'object', properties: {}, additionalProperties: false },
      effect: 'pure',
      polling: true,
      touches: () => [],
      timeoutMs: TIMEOUTS.other.defaultMs,
      execute: async (_, context) => {
        const jobs = await holdJobs(context);
        const lines = jobs.list().map((job) => {
          const state = job.result ? 'ended' : `running for ${Math.round((Date.now() - job.startedAt) / 1000)} s`;
          return `${job.handle}: ${state}; ${totalOf(job)} characters of output; ${job.tool} ${job.about}`;
        });
        if (lines.length > 0) return lines.join('\n');
        const earlier = jobs.areNew() ? ` Anything that was started before was stopped ${WHEN_STOPPED}.` : '';
        return `Nothing runs in the background.${earlier}`;
      },
    }),
    tool({
      name: 'background_read',
      description:
        'Read the output of a background job: what is new since the last read, or from an offset. Also tells whether it still ' +
        'runs, and its result when it has ended. Give wait_ms to wait for new output instead of reading again and again.',
      input: {
        type: 'object',
        properties: {
          handle: HANDLE,
          offset: { type: 'integer', minimum: 0, description: 'First character; default: after the last read' },
          wait_ms: {
            type: 'integer',
            minimum: 0,
            maximum: MAX_WAIT_MS,
            description: 'If there is nothing new, wait up to this time; default 0',
          },
        },
        required: ['handle'],
        additionalProperties: false,
      },
      effect: 'pure',
      polling: true,
      touches: () => [],
      timeoutMs: ({ wait_ms: wait = 0 }) => Number(wait) + STOP_MS,
      resources: ({ handle }) => [`background ${String(handle)}`],
      execute: async ({ handle, offset, wait_ms: wait = 0 }, context) => {
        const job = (await holdJobs(context)).get(String(handle));
        const from = offset === undefined ? job.readTo : Number(offset);
        if (from >= totalOf(job) && !job.result) {
          const aborted = new Promise<void>((done) => context.signal.addEventListener('abort', () => done()));
          await Promise.race([job.changed.promise, later(Number(wait)), aborted]);
        }
        return readJob(job, from);
      },
    }),
    tool({
      name: 'background_write',
      description:
        'Write text to the standard input of a background job, such as the answer to a question of a program. End a line with ' +
        '\\n. Give end: true to close the input after it.',
      input: {
        type: 'object',
        properties: {
          handle: HANDLE,
          text: { type: 'string', description: 'What the program gets' },
          end: { type: 'boolean', description: 'Close the input after the text' },
        },
        required: ['handle', 'text'],
        additionalProperties: false,
      },
      permissions: ['shell'],
      // The program may be a shell, in any folder.
      touches: ({ text }) => [
        { type: 'command', command: `cd "$FOLDER_OF_THE_JOB" || exit\n${String(text)}` },
        { type: 'unknown' },
      ],
      resources: ({ handle }) => [`background ${String(handle)}`],
      // The program may not read.
      timeoutMs: TIMEOUTS.other.defaultMs,
      execute: async ({ handle, text, end }, context) => {
        const job = (await holdJobs(context)).get(String(handle));
        if (job.result) throw new BackgroundError(`${job.handle} has ended. Read its result.`, 'execution_failed');
        if (!job.input) throw new BackgroundError(`${job.handle} does not read any input.`, 'invalid_params');
        await job.input.write(String(text));
        if (end === true) job.input.end();
        return `Written to ${job.handle}.`;
      },
    }),
    tool({
      name: 'background_stop',
      description: 'Stop a background job, with all processes that it has started.',
      input: { type: 'object', properties: { handle: HANDLE }, required: ['handle'], additionalProperties: false },
      effect: 'idempotent',
      touches: () => [],
      timeoutMs: TIMEOUTS.other.maxMs,
      execute: async ({ handle }, context) => {
        const job = (await holdJobs(context)).get(String(handle));
        const wasRunning = job.result === undefined;
        await stopJob(job);
        return `${job.handle} ${wasRunning ? 'was stopped' : 'had already ended'}.\n${readJob(job, job.readTo)}`;
      },
    }),
  ];
}

import fc from 'fast-check';
import type { ScriptedCall, ScriptedFault, ScriptedReply, Step } from '../../provider/script.ts';

/** What a model says, and what a client asks for and does. */
export interface World {
  readonly form: 'openai-chat' | 'openai-responses' | 'anthropic';
  readonly steps: readonly Step[];
  /** Of the request, beside its model and input. */
  readonly asked: Asked;
}

export interface Asked {
  readonly tools: readonly object[];
  readonly tool_choice?: unknown;
  readonly max_tool_calls?: number;
  readonly max_output_tokens?: number;
  readonly parallel_tool_calls?: boolean;
  readonly include?: readonly string[];
}

/** A world that does not end by itself, and when its client has had enough of it. */
export interface CutWorld extends World {
  readonly by: 'cancel' | 'vanish';
  /** When so many events have come, or the run is stuck. */
  readonly after: number;
  /** The run waits in the tool `hold` with this tag; otherwise for the rest of a reply. */
  readonly tag?: string;
}

const CLIENT = ['ask_user', 'pay'];
const SERVER = ['add', 'fail'];

const words = fc.string({
  unit: fc.constantFrom('a', 'b', ' ', '\n', '"', 'é', '日', '😀', '\\', '\r'),
  maxLength: 30,
});
/** Providers refuse what is blank. */
const text = words.map((some) => `T${some}.`);

const call: fc.Arbitrary<ScriptedCall> = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.tuple(fc.nat(99), fc.nat(99)).map(([a, b]) => ({ name: 'add', arguments: JSON.stringify({ a, b }) })),
  },
  { weight: 1, arbitrary: fc.constant({ name: 'add', arguments: '{"a":"one"}' }) },
  { weight: 2, arbitrary: words.map((why) => ({ name: 'fail', arguments: JSON.stringify({ why }) })) },
  {
    weight: 3,
    arbitrary: fc.record({
      name: fc.constantFrom(...CLIENT),
      arguments: fc.constantFrom('{}', '{"sum":12,"to":"日本"}'),
    }),
  },
  { weight: 1, arbitrary: fc.constant({ name: 'ghost', arguments: '{}' }) },
);

const usage = fc.record({ input: fc.nat(50), output: fc.integer({ min: 1, max: 30 }) });

const reply: fc.Arbitrary<ScriptedReply> = fc.oneof(
  { weight: 2, arbitrary: fc.record({ text, usage, reasoning: text }, { requiredKeys: ['text', 'usage'] }) },
  {
    weight: 5,
    arbitrary: fc.record(
      {
        calls: fc.array(call, { minLength: 1, maxLength: 4 }),
        usage,
        text,
        reasoning: fc.oneof(text, fc.constant('')),
      },
      { requiredKeys: ['calls', 'usage'] },
    ),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      text,
      usage,
      finish: fc.constantFrom('length' as const, 'content-filter' as const),
    }),
  },
);

/** Those that break an answer at the same place each time. */
const fault: fc.Arbitrary<ScriptedFault> = fc.oneof(
  fc.record({ fault: fc.constant('status' as const), status: fc.constantFrom(401, 429, 500, 529) }),
  fc.record({
    fault: fc.constantFrom(
      'reset-at-once' as const,
      'close' as const,
      'garbage' as const,
      'error-in-200' as const,
      'error-in-stream' as const,
      'web-page' as const,
    ),
    reply,
  }),
);

/** After them the model always comes to an end. */
const steps: fc.Arbitrary<readonly Step[]> = fc
  .oneof(
    {
      weight: 12,
      arbitrary: fc.array(fc.oneof({ weight: 14, arbitrary: reply }, { weight: 1, arbitrary: fault }), {
        minLength: 1,
        maxLength: 5,
      }),
    },
    // More turns than the server allows.
    {
      weight: 1,
      arbitrary: fc.constant(
        Array.from({ length: 10 }, (_, a) => ({ calls: [{ name: 'add', arguments: JSON.stringify({ a, b: 1 }) }] })),
      ),
    },
    { weight: 1, arbitrary: fc.tuple(reply, fault) },
  )
  .map((some) => [...some, ...Array.from({ length: 12 }, () => END)]);

const END: Step = { text: 'The end.' };

const FUNCTIONS = CLIENT.map((name) => ({ type: 'function', name, parameters: { type: 'object', properties: {} } }));
const MCP = { type: 'mcp', server_label: 'treadle' };

const asked: fc.Arbitrary<Asked> = fc
  .record(
    {
      tools: fc.constantFrom(
        [...FUNCTIONS, { ...MCP, allowed_tools: [...SERVER, 'hold'] }],
        [...FUNCTIONS, MCP],
        [{ ...MCP, allowed_tools: ['add', 'hold'] }, ...FUNCTIONS],
      ),
      tool_choice: fc.constantFrom<unknown>(
        'none',
        'required',
        { type: 'function', name: 'pay' },
        { type: 'mcp', server_label: 'treadle', name: 'add' },
        { type: 'allowed_tools', mode: 'auto', tools: [{ type: 'function', name: 'pay' }, MCP] },
        {
          type: 'allowed_tools',
          mode: 'required',
          tools: [
            { type: 'function', name: 'ask_user' },
            { ...MCP, name: 'add' },
          ],
        },
      ),
      max_tool_calls: fc.integer({ min: 1, max: 5 }),
      max_output_tokens: fc.integer({ min: 20, max: 90 }),
      parallel_tool_calls: fc.boolean(),
      include: fc.constant(['reasoning.encrypted_content']),
    },
    { requiredKeys: ['tools'] },
  )
  // All of them at once leave little to happen.
  .chain((all) =>
    fc
      .subarray(['tool_choice', 'max_tool_calls', 'max_output_tokens', 'parallel_tool_calls', 'include'] as const, {
        maxLength: 2,
      })
      .map((kept) => ({ tools: all.tools, ...Object.fromEntries(kept.map((name) => [name, all[name]])) }) as Asked),
  )
  .map((some) => JSON.parse(JSON.stringify(some)) as Asked);

const form = fc.constantFrom('openai-chat' as const, 'openai-responses' as const, 'anthropic' as const);

export const world: fc.Arbitrary<World> = fc.record({ form, steps, asked });

const LONG = 'Half of this comes, and then nothing. '.repeat(4);

/** A run that is stuck at some step, in the model or in a tool, or that goes on to its end while it is cut off. */
export const cutWorld: fc.Arbitrary<CutWorld> = fc
  .record({
    form,
    before: fc.array(
      fc.record({
        text,
        calls: fc.array(
          call.filter(({ name }) => SERVER.includes(name)),
          { minLength: 1, maxLength: 3 },
        ),
      }),
      { maxLength: 2 },
    ),
    stuck: fc.constantFrom('model' as const, 'tool' as const, 'nowhere' as const),
    beside: fc.array(call, { maxLength: 2 }),
    text,
    tag: fc.uuid(),
    by: fc.constantFrom('cancel' as const, 'vanish' as const),
    after: fc.integer({ min: 1, max: 40 }),
  })
  .map(({ form: its, before, stuck, beside, text: said, tag, by, after }) => {
    const calls = [...beside, { name: 'hold', arguments: JSON.stringify({ tag }) }];
    const last: Step =
      stuck === 'tool'
        ? { text: said, calls }
        : stuck === 'model'
          ? { fault: 'stall', reply: { text: LONG, calls: beside, ...(beside.length < 2 && { reasoning: LONG }) } }
          : { text: said.repeat(5) };
    const tools = [...FUNCTIONS, { ...MCP, allowed_tools: [...SERVER, 'hold'] }];
    return {
      form: its,
      steps: [...before, last],
      asked: { tools },
      by,
      // Nobody can tell when the rest of a reply does not come; so much of it does.
      after: stuck === 'model' ? Math.min(after, 7) : after,
      ...(stuck === 'tool' && { tag }),
    };
  });

/** It has no way to come to its end. */
export function isStuck({ steps: said, tag }: CutWorld): boolean {
  return tag !== undefined || said.some((step) => 'fault' in step);
}

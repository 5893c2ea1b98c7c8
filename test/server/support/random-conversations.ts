import fc from 'fast-check';
import type { ScriptedCall, ScriptedFault, ScriptedReply, Step } from '../../provider/script.ts';

/** The replies of a model, and the request of a client. */
export interface RandomConversation {
  readonly form: 'openai-chat' | 'openai-responses' | 'anthropic';
  readonly steps: readonly Step[];
  /** The fields of the request besides model and input. */
  readonly fields: RequestFields;
}

export interface RequestFields {
  readonly tools: readonly object[];
  readonly tool_choice?: unknown;
  readonly max_tool_calls?: number;
  readonly max_output_tokens?: number;
  readonly parallel_tool_calls?: boolean;
  readonly include?: readonly string[];
}

/** A run that the client interrupts. */
export interface InterruptedRun extends RandomConversation {
  readonly by: 'cancel' | 'disconnect';
  /** The client interrupts the run after this many events, or when the run hangs. */
  readonly after: number;
  /** The run hangs in the tool `hold` with this tag. Without a tag it may hang in the model. */
  readonly tag?: string;
}

const CLIENT = ['ask_user', 'pay'];
const SERVER = ['add', 'fail'];

const anyText = fc.string({
  unit: fc.constantFrom('a', 'b', ' ', '\n', '"', 'é', '日', '😀', '\\', '\r'),
  maxLength: 30,
});
/** Never blank: providers reject blank text. */
const text = anyText.map((some) => `T${some}.`);

const call: fc.Arbitrary<ScriptedCall> = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.tuple(fc.nat(99), fc.nat(99)).map(([a, b]) => ({ name: 'add', arguments: JSON.stringify({ a, b }) })),
  },
  { weight: 1, arbitrary: fc.constant({ name: 'add', arguments: '{"a":"one"}' }) },
  { weight: 2, arbitrary: anyText.map((why) => ({ name: 'fail', arguments: JSON.stringify({ why }) })) },
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

/** Faults that interrupt a reply at the same position each time. */
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

/** Random replies, followed by enough final replies for the run to end. */
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

const fields: fc.Arbitrary<RequestFields> = fc
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
  // At most two of them: all at once would end most runs immediately.
  .chain((all) =>
    fc
      .subarray(['tool_choice', 'max_tool_calls', 'max_output_tokens', 'parallel_tool_calls', 'include'] as const, {
        maxLength: 2,
      })
      .map(
        (names) =>
          ({ tools: all.tools, ...Object.fromEntries(names.map((name) => [name, all[name]])) }) as RequestFields,
      ),
  )
  .map((some) => JSON.parse(JSON.stringify(some)) as RequestFields);

const form = fc.constantFrom('openai-chat' as const, 'openai-responses' as const, 'anthropic' as const);

export const randomConversation: fc.Arbitrary<RandomConversation> = fc.record({ form, steps, fields });

const LONG = 'Half of this comes, and then nothing. '.repeat(4);

/** A run that hangs in the model or in a tool, or that continues to its end while the client interrupts it. */
export const interruptedRun: fc.Arbitrary<InterruptedRun> = fc
  .record({
    form,
    earlierTurns: fc.array(
      fc.record({
        text,
        calls: fc.array(
          call.filter(({ name }) => SERVER.includes(name)),
          { minLength: 1, maxLength: 3 },
        ),
      }),
      { maxLength: 2 },
    ),
    hangsIn: fc.constantFrom('model' as const, 'tool' as const, 'nothing' as const),
    otherCalls: fc.array(call, { maxLength: 2 }),
    text,
    tag: fc.uuid(),
    by: fc.constantFrom('cancel' as const, 'disconnect' as const),
    after: fc.integer({ min: 1, max: 40 }),
  })
  .map(({ form: wireForm, earlierTurns, hangsIn, otherCalls, text: lastText, tag, by, after }) => {
    const calls = [...otherCalls, { name: 'hold', arguments: JSON.stringify({ tag }) }];
    const last: Step =
      hangsIn === 'tool'
        ? { text: lastText, calls }
        : hangsIn === 'model'
          ? {
              fault: 'stall',
              reply: { text: LONG, calls: otherCalls, ...(otherCalls.length < 2 && { reasoning: LONG }) },
            }
          : { text: lastText.repeat(5) };
    const tools = [...FUNCTIONS, { ...MCP, allowed_tools: [...SERVER, 'hold'] }];
    return {
      form: wireForm,
      steps: [...earlierTurns, last],
      fields: { tools },
      by,
      // A stalled reply sends at least 7 events. A higher count might never be reached.
      after: hangsIn === 'model' ? Math.min(after, 7) : after,
      ...(hangsIn === 'tool' && { tag }),
    };
  });

/** Whether the run can only end by the interruption. */
export function hangs({ steps: scripted, tag }: InterruptedRun): boolean {
  return tag !== undefined || scripted.some((step) => 'fault' in step);
}

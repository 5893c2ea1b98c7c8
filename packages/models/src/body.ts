import type { CustomForm, FileBlock, ImageBlock, JsonSchema, Message, ModelRequest, ToolSpec } from '@treadle/core';
import { jsonOf, sliceableJson } from './json.ts';
import type { Output } from './slices.ts';

/** How a protocol writes a history. */
export interface HistoryForm<State> {
  readonly start: () => State;
  /**
   * The text that a message adds, starting with a comma; may be empty. It may change `state`, which belongs to that one
   * history, so a list that neighbouring messages share can stay open and be closed later.
   */
  readonly write: (message: Message, state: State) => string;
  /** The end of a request after that history. */
  readonly close: (state: State) => string;
}

/** What a model writes before the history: up to the opening bracket, optionally with a first element of the list. */
export interface Head<State> {
  readonly write: (request: ModelRequest, state: State) => string;
  /** The part of the history's state that the head depends on. */
  readonly dependsOn?: (state: State) => unknown;
}

/** The fields of a request that a head may depend on. */
type HeadFields = Omit<ModelRequest, 'messages' | 'deadline' | 'key'>;

/**
 * The request that was last written for a history. It must not reference the array of messages: the value of a WeakMap
 * keeps its key alive until the next full garbage collection, which is rare.
 */
interface Written<State> {
  bytes: Buffer;
  /** Start and end of the history within `bytes`. */
  from: number;
  to: number;
  count: number;
  last: Message | undefined;
  readonly state: State;
  /** The writer of the head, the fields that it was written for, and the part of the state that it depended on. */
  head: unknown;
  headFields: HeadFields | undefined;
  dependedOn: unknown;
}

/** Writes a request as JSON. Only a large one is a promise, which rejects if `signal` is aborted before it is written. */
export type WriteBody = (request: ModelRequest, signal?: AbortSignal) => Uint8Array | Promise<Uint8Array>;

/** Histories in one form, by their arrays of messages. */
export interface Histories<State> {
  readonly form: HistoryForm<State>;
  readonly written: WeakMap<readonly Message[], Written<State>>;
}

/** More characters are written in slices: they take more than some milliseconds. */
const LARGE_CHARS = 1_048_576;
/** More bytes are copied in slices. */
const LARGE_BYTES = 8_388_608;
const FIRST_CAPACITY = 2_048;
const NO_BYTES = Buffer.alloc(0);
const COMMA = 44;
const SPACE = 32;

/**
 * Writes requests as bytes: head, history and end, in one buffer that a turn only appends to. Each message is serialised
 * once: when the same array comes again, longer, only the new messages are written. The head is rewritten only if one of
 * its fields is another object than before.
 *
 * The returned bytes are valid while the array is unchanged, that is until the reply has arrived. The next turn then
 * overwrites the end. If the head changes while the history does not, as when two models get the same history at once,
 * a new buffer is used.
 *
 * Models with the same `histories` share what has been written of a history.
 *
 * A large request is written in slices, and the event loop turns between them. Nobody else sees its history meanwhile.
 */
export function bodyWriter<State>(histories: Histories<State>, head: Head<State>): WriteBody {
  const { form, written: stored } = histories;
  return (request, signal) => {
    const { messages } = request;
    let written = stored.get(messages);
    if (!isWrittenStart(written, messages)) {
      written = nothingWritten(form.start());
      stored.set(messages, written);
    }
    if (isLarge(written, head, request)) return writeInSlices(histories, head, request, signal);
    try {
      writeNewMessages(written, form, head, request);
    } catch (thrown) {
      // The state may be ahead of the bytes.
      stored.delete(messages);
      throw thrown;
    }
    return written.bytes.subarray(0, written.to + written.bytes.write(form.close(written.state), written.to));
  };
}

/** Whether that has been written of these messages. */
function isWrittenStart<State>(
  written: Written<State> | undefined,
  messages: readonly Message[],
): written is Written<State> {
  return written !== undefined && written.count <= messages.length && messages[written.count - 1] === written.last;
}

function isLarge(written: Written<unknown>, head: unknown, request: ModelRequest): boolean {
  const { messages, instructions = '' } = request;
  let chars = 0;
  for (let at = written.count; at < messages.length; at++) chars += charsOf(messages[at]!);
  if (chars > LARGE_CHARS) return true;
  if (instructions.length <= LARGE_CHARS && written.to <= LARGE_BYTES) return false;
  return written.head !== head || !isSameHead(written.headFields!, request);
}

/** The characters of a message that can be many. */
function charsOf(message: Message): number {
  let chars = 0;
  switch (message.role) {
    case 'user':
      for (const block of message.content) chars += block.type === 'text' ? block.text.length : mediaChars(block);
      return chars;
    case 'assistant':
      for (const part of message.content) chars += (part.type === 'tool-call' ? part.arguments : part.text).length;
      return chars;
    case 'tool':
      for (const { content } of message.content) {
        for (const block of content) {
          chars += block.type === 'text' || block.type === 'error' ? block.text.length : mediaChars(block);
        }
      }
      return chars;
    default:
      return message satisfies never;
  }
}

function mediaChars({ source }: ImageBlock | FileBlock): number {
  return source.type === 'data' ? source.data.length : 0;
}

/** Writes a large request. Its history is out of the store meanwhile; if this fails, it is written again. */
async function writeInSlices<State>(
  { form, written: stored }: Histories<State>,
  head: Head<State>,
  request: ModelRequest,
  signal: AbortSignal | undefined,
): Promise<Uint8Array> {
  const { inSlices, pieces } = await import('./slices.ts');
  return inSlices(signal, async (slices) => {
    const { messages, instructions = '' } = request;
    // Another request may have written it while this one waited.
    const found = stored.get(messages);
    const written = isWrittenStart(found, messages) ? found : nothingWritten(form.start());
    stored.delete(messages);

    const { state } = written;
    const all = [...messages];
    const added = pieces();
    for (const message of all.slice(written.count)) {
      await slices.add(added, charsOf(message), () => form.write(message, state));
    }
    written.count = all.length;
    written.last = all.at(-1);

    const output: Output = { bytes: written.bytes, to: written.to };
    const isRewritten = !isHeadWritten(written, head, request);
    let start = '';
    if (isRewritten) {
      const headPieces = pieces();
      await slices.add(headPieces, instructions.length, () => (start = head.write(request, state)));
      const before = written.bytes.subarray(written.from, written.to);
      output.bytes = Buffer.allocUnsafeSlow(2 * (headPieces.chars + before.length + added.chars));
      output.to = 0;
      await slices.write(output, headPieces);
      written.from = output.to;
      await slices.copy(output, before);
      noteHead(written, head, request);
    }
    await slices.write(output, added);
    written.to = output.to;
    await slices.write(output, pieces(form.close(state)));
    written.bytes = output.bytes;
    if (isRewritten) joinHistory(written, start);
    stored.set(messages, written);
    return output.bytes.subarray(0, output.to);
  });
}

/** Leaves room for the end. */
function writeNewMessages<State>(
  written: Written<State>,
  form: HistoryForm<State>,
  head: Head<State>,
  request: ModelRequest,
): void {
  const { messages } = request;
  const { state } = written;
  let added = '';
  for (let at = written.count; at < messages.length; at++) added += form.write(messages[at]!, state);
  written.count = messages.length;
  written.last = messages.at(-1);

  const end = form.close(state);
  if (isHeadWritten(written, head, request)) return appendToBody(written, added, end);
  rewriteBody(written, head.write(request, state), added, end);
  noteHead(written, head, request);
}

/** Whether the bytes begin with the head of that request. */
function isHeadWritten<State>(written: Written<State>, head: Head<State>, request: ModelRequest): boolean {
  const hasHead = written.head === head && written.to > written.from;
  const dependsOn = head.dependsOn?.(written.state);
  return hasHead && written.dependedOn === dependsOn && isSameHead(written.headFields!, request);
}

function noteHead<State>(written: Written<State>, head: Head<State>, request: ModelRequest): void {
  written.head = head;
  written.headFields = headFieldsOf(request);
  written.dependedOn = head.dependsOn?.(written.state);
}

function nothingWritten<State>(state: State): Written<State> {
  const noHead = { head: undefined, headFields: undefined, dependedOn: undefined };
  return { bytes: NO_BYTES, from: 0, to: 0, count: 0, last: undefined, state, ...noHead };
}

function headFieldsOf({ messages: _, deadline: _d, key: _k, ...fields }: ModelRequest): HeadFields {
  return fields;
}

function isSameHead(before: HeadFields, now: ModelRequest): boolean {
  return (
    before.tools === now.tools &&
    before.instructions === now.instructions &&
    before.settings === now.settings &&
    before.toolChoice === now.toolChoice &&
    before.allowedTools === now.allowedTools &&
    before.parallel === now.parallel &&
    before.output === now.output &&
    before.outputForm === now.outputForm
  );
}

/** Writes a new head and copies the history behind it, in a new buffer. */
function rewriteBody(written: Written<unknown>, head: string, added: string, end: string): void {
  const before = written.bytes.subarray(written.from, written.to);
  const size = Buffer.byteLength(head) + before.length + Buffer.byteLength(added) + Buffer.byteLength(end);
  written.bytes = Buffer.allocUnsafeSlow(Math.max(size * 2, FIRST_CAPACITY));
  written.from = written.bytes.write(head);
  written.to = written.from + before.copy(written.bytes, written.from);
  written.to += written.bytes.write(added, written.to);
  joinHistory(written, head);
}

/** A history begins with a comma, which the first element of a list must not have. */
function joinHistory({ bytes, from, to }: Written<unknown>, head: string): void {
  if (to > from) bytes[from] = head.endsWith('[') ? SPACE : COMMA;
}

function appendToBody(written: Written<unknown>, added: string, end: string): void {
  const size = written.to + Buffer.byteLength(added) + Buffer.byteLength(end);
  if (size > written.bytes.length) {
    const larger = Buffer.allocUnsafeSlow(size * 2);
    written.bytes.copy(larger, 0, 0, written.to);
    written.bytes = larger;
  }
  written.to += written.bytes.write(added, written.to);
}

export function histories<State>(form: HistoryForm<State>): Histories<State> {
  return { form, written: new WeakMap() };
}

/** Histories of messages that do not depend on each other. `serialise` returns comma-separated JSON, maybe none. */
export function listOfMessages(serialise: (message: Message) => string): Histories<undefined> {
  return histories({
    start: () => undefined,
    write: (message) => {
      const json = serialise(message);
      return json === '' ? '' : `,${json}`;
    },
    close: () => ']}',
  });
}

/** One store for each kind of histories, shared by all models that write messages in the same way. */
export function perKind<Store>(create: (kind: string) => Store): (kind: string) => Store {
  const stores = new Map<string, Store>();
  return (kind) => {
    let store = stores.get(kind);
    if (store === undefined) stores.set(kind, (store = create(kind)));
    return store;
  };
}

/** Computes the value of each object once. */
export function memoized<Key extends object, Value>(compute: (key: Key) => Value): (key: Key) => Value {
  const values = new WeakMap<Key, Value>();
  return (key) => {
    let value = values.get(key);
    if (value === undefined) values.set(key, (value = compute(key)));
    return value;
  };
}

const outputInstructions = memoized(
  (output: JsonSchema) =>
    `Give the final answer as JSON alone, without other words, that fits this JSON Schema:\n${JSON.stringify(output)}`,
);

/**
 * The instructions, followed by a description of the form of the answer. For hosts that do not enforce a schema, or not
 * while there are tools. The loop validates the answer in any case.
 */
export function instructionsWithForm({ instructions, output, outputForm }: ModelRequest): string | undefined {
  if (output === undefined) return instructions;
  const purpose = outputForm?.description;
  const form = purpose === undefined ? outputInstructions(output) : `${outputInstructions(output)}\n${purpose}`;
  return instructions ? `${instructions}\n\n${form}` : form;
}

/** The parts of a body with `messages` and `tools` in the form that Chat Completions and Ollama's chat share. */
export interface MessagesBody<State> {
  readonly model: string;
  readonly histories: Histories<State>;
  /** The text of the system message; without it there is none. */
  readonly system: (request: ModelRequest) => string | undefined;
  readonly tools: (request: ModelRequest) => readonly ToolSpec[];
  /** Tools that take a text are sent as such. */
  readonly customTools?: boolean;
  /** All other fields. Undefined ones are not sent. */
  readonly rest: (request: ModelRequest) => Readonly<Record<string, unknown>>;
}

const functionTools = memoized((tools: readonly ToolSpec[]) => toolsField(tools.map(functionTool)));

const chatTools = memoized((tools: readonly ToolSpec[]) =>
  toolsField(tools.map((tool) => (tool.custom ? customTool(tool.name, tool.custom) : functionTool(tool)))),
);

function toolsField(wire: readonly unknown[]): string {
  return wire.length === 0 ? '' : `,"tools":${jsonOf(wire)}`;
}

function functionTool({ name, description, parameters, strict }: ToolSpec): unknown {
  return { type: 'function', function: { name, description, parameters, ...(strict && { strict }) } };
}

/** Unlike in the Responses API, a grammar is nested. */
function customTool(name: string, { description, format }: CustomForm): unknown {
  const { type, ...grammar } = format ?? {};
  const nested = format && { format: type === 'grammar' ? { type, grammar } : format };
  return { type: 'custom', custom: { name, description, ...nested } };
}

export function messagesBody<State>(parts: MessagesBody<State>): WriteBody {
  const { model, histories } = parts;
  const toolsOf = parts.customTools ? chatTools : functionTools;
  return bodyWriter(histories, {
    write(request) {
      const instructions = parts.system(request);
      const system = instructions ? sliceableJson({ role: 'system', content: instructions }) : '';
      const rest = jsonOf({ model, ...parts.rest(request) }).slice(0, -1);
      return `${rest}${toolsOf(parts.tools(request))},"messages":[${system}`;
    },
  });
}

import type { ElicitRequestParams, ElicitResult } from '@modelcontextprotocol/client';
import type { AskedQuestion, JsonSchema, Question, ToolContext } from '@treadle/core';
import type { ActiveCall } from './calls.ts';
import { cleanSchema, cleanText } from './describe.ts';
import { checkedSchema } from './schemas.ts';

/*
 * Questions of servers (elicitation), as questions of the run. Each has an id, so that it is asked once, also if the call
 * starts again in another process.
 */

/** A server that asks more in one call is refused. */
const MAX_QUESTIONS = 50;

const OPENED = 'opened';
const ACCEPT = 'accept';
const DECLINE = 'decline';

/** Puts a question of a server to people. Nobody answers: the server is told that it was cancelled. */
export async function elicit(
  name: string,
  call: ActiveCall,
  request: ElicitRequestParams,
  id: string,
): Promise<ElicitResult> {
  const question = questionOf(name, request);
  if (!question || call.asked++ >= MAX_QUESTIONS) return { action: 'decline' };
  try {
    const kind = request.mode === 'url' ? 'url' : 'form';
    return answerOf(kind, question, await call.waitForPeople(() => call.context.ask({ ...question, id })));
  } catch (error) {
    if (call.signal.aborted) throw error;
    return { action: 'cancel' };
  }
}

/** Undefined if people should not see it. */
function questionOf(name: string, request: ElicitRequestParams): Question | undefined {
  const message = cleanText(request.message);
  if (request.mode === 'url') {
    const url = URL.parse(request.url);
    if (!url || !(url.protocol === 'https:' || isLoopback(url))) return undefined;
    const warning = `Open it only if you trust the server and "${url.hostname}".`;
    return {
      prompt: `MCP server "${name}" asks you to open ${url.href}\n${message}\n${warning}`,
      choices: [OPENED, DECLINE],
    };
  }
  const prompt = `MCP server "${name}" asks: ${message}`;
  try {
    const form = checkedSchema(cleanSchema(request.requestedSchema, 'requested'));
    if (Object.keys(form['properties'] ?? {}).length === 0) return { prompt, choices: [ACCEPT, DECLINE] };
    return { prompt, schema: { anyOf: [form, DECLINED] } };
  } catch {
    return undefined;
  }
}

const DECLINED: JsonSchema = { type: 'null', description: 'null declines' };

function isLoopback({ protocol, hostname }: URL): boolean {
  return protocol === 'http:' && ['localhost', '127.0.0.1', '[::1]'].includes(hostname);
}

function answerOf(kind: 'form' | 'url', { schema }: Question, value: unknown): ElicitResult {
  if (value === null || value === DECLINE) return { action: 'decline' };
  if (kind === 'url') return { action: 'accept' };
  if (value === ACCEPT) return { action: 'accept', content: {} };
  const [form] = (schema?.['anyOf'] ?? []) as readonly { properties?: Record<string, { default?: unknown }> }[];
  const defaults = Object.entries(form?.properties ?? {}).flatMap(([key, property]) =>
    property.default === undefined ? [] : [[key, property.default]],
  );
  return { action: 'accept', content: { ...Object.fromEntries(defaults), ...(value as ElicitResult['content']) } };
}

// ── Answers from before a restart ────────────────────────────────────────────────────────────────────────────────────

/** A longer state is not recorded. The call starts from its beginning then. */
const MAX_STATE_CHARS = 65_536;
const KEPT = 'mcp input ';

interface KeptQuestion {
  readonly round: number;
  /** The server's own name for the request. */
  readonly request: string;
  readonly kind: 'form' | 'url';
  readonly requestState?: string | undefined;
}

/** The id of a question has all that is needed to give the answer to the server, also in another process. */
export function inputId(kept: KeptQuestion): string {
  const { requestState = '', round, request } = kept;
  return requestState.length > MAX_STATE_CHARS ? `input ${round} ${request}` : `${KEPT}${JSON.stringify(kept)}`;
}

/** What people have answered to the last request for input that this call got in another process. */
export function answeredBefore({ asked = [] }: ToolContext): AnsweredInput | undefined {
  const all = asked.flatMap((one): readonly (KeptQuestion & AskedQuestion)[] =>
    one.key.startsWith(KEPT) ? [{ ...one, ...(JSON.parse(one.key.slice(KEPT.length)) as KeptQuestion) }] : [],
  );
  const last = all.at(-1);
  if (!last) return undefined;
  const responses = all
    .filter(({ round }) => round === last.round)
    .map(({ request, kind, question, answer }): [string, ElicitResult] => [
      request,
      answer ? answerOf(kind, question, answer.value) : { action: 'cancel' },
    ]);
  const { round, requestState } = last;
  return { round, responses: Object.fromEntries(responses), requestState };
}

export interface AnsweredInput {
  readonly round: number;
  readonly responses: Record<string, ElicitResult>;
  readonly requestState: string | undefined;
}

import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { answer, fail, refuse, type Answering } from './faults.ts';
import type { Body, Form } from './forms/form.ts';
import { forms } from './forms/forms.ts';
import { makeReply } from './made.ts';
import type { Given, RuleOptions } from './rules/given.ts';
import { isFault, type FormName, type ScriptedReply, type Seen, type Step } from './script.ts';

/** One conversation: request n is answered by step n. */
interface Conversation {
  readonly name: string;
  readonly steps: Step[];
  readonly isStrict: boolean;
  readonly seen: Seen[];
  /** How often a text that is repeated was taken. */
  said: number;
}

/** What each form has given out, in whichever conversation, and demands back. */
type GivenOut = Map<FormName, Given>;

export interface ProviderServer {
  readonly http: Server;
  /** Steps are added to those of the name that are left. */
  readonly script: (name: string, steps: readonly Step[], isStrict: boolean) => void;
  readonly seen: (name: string) => readonly Seen[];
  /** How often a text that is repeated was taken so far. */
  readonly said: (name: string) => number;
  /**
   * Resolves when every request has been answered to its end or is gone, and no more connections are open than these,
   * which a client may keep for its next request.
   */
  readonly quiet: (connections: number) => Promise<void>;
}

/** Models are at `/<name of the script>/<form>/…`. */
export function providerServer(): ProviderServer {
  const conversations = new Map<string, Conversation>();
  const sockets = new Set<Socket>();
  const busy = new Set<ServerResponse>();
  const waiting = new Set<() => void>();
  const given: GivenOut = new Map();
  const look = (): void => {
    for (const wake of waiting) wake();
  };

  const http = createServer((request, response) => {
    busy.add(response);
    response.on('close', () => {
      busy.delete(response);
      look();
    });
    void respond(request, response, conversations, given).catch((thrown: unknown) => response.destroy(thrown as Error));
  });
  // Idle connections stay: closing one just when it is used again would be a fault that nobody has asked for.
  http.keepAliveTimeout = 0;
  http.on('connection', (socket) => {
    sockets.add(socket);
    socket.on('close', () => {
      sockets.delete(socket);
      look();
    });
    socket.on('error', () => {});
  });

  return {
    http,
    script(name, steps, isStrict) {
      const before = conversations.get(name);
      if (before) before.steps.push(...steps);
      else conversations.set(name, { name, steps: [...steps], isStrict, seen: [], said: 0 });
    },
    seen: (name) => conversations.get(name)?.seen ?? [],
    said: (name) => conversations.get(name)?.said ?? 0,
    quiet: (connections) =>
      new Promise((resolve) => {
        const wake = (): void => {
          if (busy.size > 0 || sockets.size > connections) return;
          waiting.delete(wake);
          resolve();
        };
        waiting.add(wake);
        wake();
      }),
  };
}

async function respond(
  request: IncomingMessage,
  response: ServerResponse,
  conversations: ReadonlyMap<string, Conversation>,
  given: GivenOut,
): Promise<void> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  const path = request.url!;
  const [, name, formName, ...rest] = path.split('?', 1)[0]!.split('/');
  const conversation = conversations.get(name!);
  const form = forms[formName as FormName] as Form | undefined;
  if (conversation === undefined || form === undefined || !`/${rest.join('/')}`.endsWith(form.endpoint)) {
    response.writeHead(404, { 'content-type': 'text/plain' });
    response.end(`404 page not found: ${path}`);
    return;
  }
  const body = parsed(Buffer.concat(chunks).toString('utf8'));
  const at = conversation.seen.length;
  const refusal = refusalOf(formName as FormName, request, body, {
    given: given.get(formName as FormName) ?? NOTHING_GIVEN,
    strict: conversation.isStrict,
  });
  conversation.seen.push({ path, headers: request.headers, body, ...(refusal && { refused: refusal.message }) });
  const seed = `${conversation.name} ${at}`;
  const answering: Answering = {
    form,
    body: body as Body,
    request,
    response,
    seed,
    onSaid: () => void conversation.said++,
  };
  if (refusal !== undefined) return refuse(answering, refusal.status, refusal.message);
  const step = conversation.steps.shift();
  if (step === undefined) return refuse(answering, 500, 'This request is beyond the script.');
  if (isFault(step)) return fail(answering, step);
  remember(given, formName as FormName, step, seed);
  answer(answering, step);
}

interface Refusal {
  readonly status: number;
  readonly message: string;
}

/** A refused request takes no step: it is the caller's fault, not part of the script. */
function refusalOf(
  formName: FormName,
  { headers, method }: IncomingMessage,
  body: unknown,
  options: RuleOptions,
): Refusal | undefined {
  const form = forms[formName];
  if (method !== 'POST') return { status: 405, message: `method ${method} not allowed` };
  const stranger = form.headerProblem(headers);
  if (stranger !== undefined) return { status: 401, message: stranger };
  if (!headers['content-type']?.includes('application/json'))
    return { status: 415, message: `Unsupported content type: '${headers['content-type']}'` };
  const message = form.rules(body, options);
  return message === undefined ? undefined : { status: 400, message };
}

const NOTHING_GIVEN: Given = { signatures: {}, reasoningOf: {}, encrypted: {} };

function remember(given: GivenOut, name: FormName, reply: ScriptedReply, seed: string): void {
  const { signatures, reasoningOf, encrypted } = given.get(name) ?? NOTHING_GIVEN;
  const more = forms[name].given(makeReply(reply, seed, ''));
  given.set(name, {
    signatures: { ...signatures, ...more.signatures },
    reasoningOf: { ...reasoningOf, ...more.reasoningOf },
    encrypted: { ...encrypted, ...more.encrypted },
  });
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}

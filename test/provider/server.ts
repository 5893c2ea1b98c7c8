import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { sendError, sendFault, sendReply, type Answering } from './faults.ts';
import type { Body, Form } from './forms/form.ts';
import { forms } from './forms/forms.ts';
import { completeReply } from './complete-reply.ts';
import type { Issued, RuleOptions } from './rules/rules.ts';
import { isFault, type FormName, type ScriptedReply, type Seen, type Step } from './script.ts';

/** One conversation: request n is answered by step n. */
interface Conversation {
  readonly name: string;
  readonly steps: Step[];
  readonly isStrict: boolean;
  readonly seen: Seen[];
  /** How often the client has read a repeated text. */
  said: number;
}

/** What each form has issued, in all conversations, and requires back. */
type IssuedByForm = Map<FormName, Issued>;

export interface ProviderServer {
  readonly http: Server;
  /** Adds steps to the remaining ones of that name. */
  readonly script: (name: string, steps: readonly Step[], isStrict: boolean) => void;
  readonly seen: (name: string) => readonly Seen[];
  /** How often the client has read a repeated text so far. */
  readonly said: (name: string) => number;
  /**
   * Resolves when every request has been answered or aborted, and at most `connections` are open, which a client may keep
   * for its next request.
   */
  readonly quiet: (connections: number) => Promise<void>;
}

/** The base URL of a model is `/<name of the script>/<form>/…`. */
export function providerServer(): ProviderServer {
  const conversations = new Map<string, Conversation>();
  const sockets = new Set<Socket>();
  const busy = new Set<ServerResponse>();
  const waiting = new Set<() => void>();
  const issued: IssuedByForm = new Map();
  const checkQuiet = (): void => {
    for (const check of waiting) check();
  };

  const http = createServer((request, response) => {
    busy.add(response);
    response.on('close', () => {
      busy.delete(response);
      checkQuiet();
    });
    void respond(request, response, conversations, issued).catch((thrown: unknown) =>
      response.destroy(thrown as Error),
    );
  });
  // Idle connections stay open: closing one just when it is reused would be a fault that the script does not contain.
  http.keepAliveTimeout = 0;
  http.on('connection', (socket) => {
    sockets.add(socket);
    socket.on('close', () => {
      sockets.delete(socket);
      checkQuiet();
    });
    socket.on('error', () => {});
  });

  return {
    http,
    script(name, steps, isStrict) {
      const existing = conversations.get(name);
      if (existing) existing.steps.push(...steps);
      else conversations.set(name, { name, steps: [...steps], isStrict, seen: [], said: 0 });
    },
    seen: (name) => conversations.get(name)?.seen ?? [],
    said: (name) => conversations.get(name)?.said ?? 0,
    quiet: (connections) =>
      new Promise((resolve) => {
        const check = (): void => {
          if (busy.size > 0 || sockets.size > connections) return;
          waiting.delete(check);
          resolve();
        };
        waiting.add(check);
        check();
      }),
  };
}

async function respond(
  request: IncomingMessage,
  response: ServerResponse,
  conversations: ReadonlyMap<string, Conversation>,
  issued: IssuedByForm,
): Promise<void> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  const path = request.url!;
  const [, name, formName, ...rest] = path.split('?', 1)[0]!.split('/');
  const conversation = conversations.get(name!);
  const form = forms[formName as FormName] as Form | undefined;
  if (conversation === undefined || form === undefined || !isEndpoint(form, `/${rest.join('/')}`)) {
    response.writeHead(404, { 'content-type': 'text/plain' });
    response.end(`404 page not found: ${path}`);
    return;
  }
  const body = parsed(Buffer.concat(chunks).toString('utf8'));
  const model = form.modelIn?.(path) ?? String((body as Body | undefined)?.['model']);
  const at = conversation.seen.length;
  const refusal = refusalOf(formName as FormName, request, body, {
    issued: issued.get(formName as FormName) ?? NOTHING_ISSUED,
    strict: conversation.isStrict,
    model,
  });
  conversation.seen.push({ path, headers: request.headers, body, ...(refusal && { refused: refusal.message }) });
  const seed = `${conversation.name} ${at}`;
  const answering: Answering = {
    form,
    body: body as Body,
    model,
    isStreamed: form.isStreamed(body as Body, path),
    request,
    response,
    seed,
    onSaid: () => void conversation.said++,
  };
  if (refusal !== undefined) return sendError(answering, refusal.status, refusal.message);
  const step = conversation.steps.shift();
  if (step === undefined) return sendError(answering, 500, 'The script has no step for this request.');
  if (isFault(step)) return sendFault(answering, step);
  rememberIssued(issued, formName as FormName, step, seed);
  sendReply(answering, step);
}

function isEndpoint({ endpoint }: Form, path: string): boolean {
  return typeof endpoint === 'string' ? path.endsWith(endpoint) : endpoint.test(path);
}

interface Refusal {
  readonly status: number;
  readonly message: string;
}

/** A rejected request takes no step: it is an error of the caller, not part of the script. */
function refusalOf(
  formName: FormName,
  { headers, method }: IncomingMessage,
  body: unknown,
  options: RuleOptions,
): Refusal | undefined {
  const form = forms[formName];
  if (method !== 'POST') return { status: 405, message: `method ${method} not allowed` };
  const headerProblem = form.headerProblem(headers);
  if (headerProblem !== undefined) return { status: 401, message: headerProblem };
  if (!headers['content-type']?.includes('application/json'))
    return { status: 415, message: `Unsupported content type: '${headers['content-type']}'` };
  const message = form.rules(body, options);
  return message === undefined ? undefined : { status: 400, message };
}

const NOTHING_ISSUED: Issued = { signatures: {}, reasoningOf: {}, encrypted: {} };

function rememberIssued(issued: IssuedByForm, name: FormName, reply: ScriptedReply, seed: string): void {
  const { signatures, reasoningOf, encrypted } = issued.get(name) ?? NOTHING_ISSUED;
  const more = forms[name].issued(completeReply(reply, seed, ''));
  issued.set(name, {
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

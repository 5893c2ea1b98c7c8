import { messageOf, type Call } from '@treadle/core';
import type {
  ApprovalRequest as WireApproval,
  ChatAnswer,
  ChatEvent,
  QuestionRequest as WireQuestion,
} from '@treadle/server/wire';
import type { ApprovalRequest, QuestionRequest } from '../run/drive-run.ts';
import type { RemoteChat } from './remote-chat.ts';

type Open = ({ readonly type: 'approval_request' } & WireApproval) | ({ readonly type: 'question' } & WireQuestion);

/** What waits for the user. They are asked about one at a time. */
export interface Asked {
  readonly open: Map<string, Open>;
  isAsking: boolean;
}

/** Notes what an event asks the user, or that a call has been decided elsewhere, such as on the page. */
export function answerAsked(event: ChatEvent, asked: Asked, chat: RemoteChat): void {
  const { open } = asked;
  if (event.type === 'approval_request' || event.type === 'question') open.set(event.id, event);
  else if (event.type === 'tool_call_decision' || event.type === 'tool_call_result') {
    for (const [id, { call_id }] of open) if (call_id === event.id) open.delete(id);
  }
  void askNext(asked, chat);
}

async function askNext(asked: Asked, chat: RemoteChat): Promise<void> {
  const { open } = asked;
  if (asked.isAsking || open.size === 0 || chat.conversation === undefined) return;
  asked.isAsking = true;
  const [next] = open.values();
  try {
    const body = await (next!.type === 'question' ? answerOf(next!, chat) : decisionOf(next!, asked, chat));
    if (body === undefined) open.delete(next!.id);
    else {
      open.delete(body.id);
      await chat.server.answer(chat.conversation, body);
    }
  } catch (error) {
    // Somebody else was faster, or its time is over.
    chat.dialogue.writeLine(messageOf(error));
  } finally {
    asked.isAsking = false;
  }
  void askNext(asked, chat);
}

async function decisionOf(
  first: { readonly type: 'approval_request' } & WireApproval,
  { open }: Asked,
  { dialogue }: RemoteChat,
): Promise<ChatAnswer> {
  const others = [...open.values()].filter((one) => one.type === 'approval_request' && one.id !== first.id);
  const request = requestOf(first);
  const decision = await dialogue.approve(
    request,
    others.map((one) => requestOf(one as WireApproval)),
  );
  const { effect: id, digest } = decision.request ?? request;
  const { approved, reason, forRun } = decision;
  return { id, digest, approved, ...(!approved && reason && { reason }), ...(forRun && { for_run: true }) };
}

async function answerOf(
  question: { readonly type: 'question' } & WireQuestion,
  { dialogue }: RemoteChat,
): Promise<ChatAnswer | undefined> {
  const { id, prompt, choices, schema } = question;
  const asking: QuestionRequest = {
    type: 'question',
    effect: id,
    call: callOf(question),
    question: { prompt, ...(choices && { choices }), ...(schema && { schema: schema as never }) },
  };
  const answer = await dialogue.answer(asking);
  return answer === undefined ? undefined : { id, answer };
}

/** As the screen shows it. The id is in the place of the effect. */
function requestOf(wire: WireApproval): ApprovalRequest {
  const { id, digest, touches, reason, rule, shown, expires_at } = wire;
  return {
    type: 'approval',
    effect: id,
    call: callOf(wire),
    digest,
    touches,
    ...(reason !== null && { reason }),
    ...(rule !== undefined && { rule }),
    ...(shown !== undefined && { shown }),
    expiresAt: expires_at,
  } as ApprovalRequest;
}

function callOf(wire: { readonly call_id: string; readonly tool: string; readonly arguments?: string }): Call {
  return { turn: 0, index: 0, id: wire.call_id, name: wire.tool, arguments: wire.arguments ?? '{}' } as Call;
}

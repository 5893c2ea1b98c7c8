import type { Tool } from '@treadle/core';
import type { ScriptStep } from '@treadle/core/testing';
import {
  AbstractChat,
  DefaultChatTransport,
  lastAssistantMessageIsCompleteWithApprovalResponses,
  type ChatState,
  type ChatStatus,
  type UIMessage,
} from 'ai';
import type { InProcessServer } from './in-process.ts';

export const withTools = (...tools: Tool[]): { tools: Tool[]; defaultTools: string[] } => ({
  tools,
  defaultTools: tools.map(({ name }) => name),
});

/** A reply that does not come until it is released or the run is cancelled. */
export function heldStep(reply = 'never'): {
  readonly started: Promise<void>;
  readonly step: ScriptStep;
  readonly release: () => void;
} {
  const { promise: started, resolve } = Promise.withResolvers<void>();
  const released = Promise.withResolvers<void>();
  const step: ScriptStep = async (_, signal) => {
    resolve();
    signal.addEventListener('abort', () => released.resolve());
    await released.promise;
    if (!signal.aborted) return reply;
    return { type: 'failure', error: { code: 'cancelled', message: 'Cancelled.', retryable: false } };
  };
  return { started, step, release: released.resolve };
}

class MemoryState implements ChatState<UIMessage> {
  status: ChatStatus = 'ready';
  error: Error | undefined = undefined;
  messages: UIMessage[] = [];
  pushMessage = (message: UIMessage): void => void this.messages.push(message);
  popMessage = (): void => void this.messages.pop();
  replaceMessage = (index: number, message: UIMessage): void => {
    this.messages[index] = structuredClone(message);
  };
  snapshot = <T>(value: T): T => structuredClone(value);
}

/** The chat that `useChat` uses, without React. */
export class TestChat extends AbstractChat<UIMessage> {
  /** `headers`: with them, `Accept` names the protocol, and not the path. */
  constructor(server: InProcessServer, id: string, body: object = {}, headers?: Record<string, string>) {
    const api = `${server.url}/v1/chat${headers ? '' : '/ui'}`;
    super({
      id,
      state: new MemoryState(),
      transport: new DefaultChatTransport({ api, body, ...(headers && { headers }) }),
      sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
    });
  }
  /** The parts of the last message, without what only the client needs. */
  shown(): object[] {
    return this.lastMessage!.parts.map(({ ...part }) => {
      for (const name of ['id', 'providerMetadata', 'callProviderMetadata', 'approval']) delete (part as never)[name];
      return JSON.parse(JSON.stringify(part)) as object;
    });
  }
}

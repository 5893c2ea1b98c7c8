import { createHash } from 'node:crypto';
import {
  stableJson,
  type Ask,
  type CallCheck,
  type Event,
  type RecordedVerdict,
  type ToolCall,
  type ToolFacts,
  type Touch,
} from '@treadle/core';
import { askUnderRules, DAY, digestOf } from './observed.ts';

/** Whether a call may run: by the last verdict on it, by people, or by what they allowed for the rest of the run. */
export type Permission =
  | {
      readonly type: 'allowed';
      readonly touches?: readonly Touch[] | undefined;
      readonly sandbox?: readonly string[] | undefined;
    }
  | { readonly type: 'denied' }
  | ({ readonly type: 'asking'; readonly sandbox?: readonly string[] | undefined } & Ask);

/** A call, with its permissions and the moments from which on it has them. */
interface JudgedCall {
  readonly part: ToolCall;
  readonly check: CallCheck | undefined;
  readonly permissions: readonly { readonly at: number; readonly permission: Permission }[];
}

type Escalated = Extract<Event, { type: 'budget-escalated' }>;

type Decision = Extract<Event, { type: 'approval-given' }>;

/** A second implementation of who allows what, derived from the events. */
export interface Permissions {
  readonly follow: (event: Event) => void;
  /** Calls have to be judged. */
  readonly isJudged: () => boolean;
  readonly last: (call: JudgedCall) => Permission | undefined;
  /** A verdict on the call, at a time and a moment. */
  readonly judge: (call: JudgedCall, verdict: RecordedVerdict | undefined, time: number, at: number) => void;
  /** The same for a call that has begun, so that nobody can be asked. */
  readonly judgeBegun: (call: JudgedCall, verdict: RecordedVerdict | undefined, time: number, at: number) => void;
  /** The call exceeds a budget, and people decide. */
  readonly escalate: (call: JudgedCall, event: Escalated, at: number) => void;
  readonly decide: (call: JudgedCall, event: Decision, at: number) => void;
}

const DENIED: Permission = { type: 'denied' };
const UNDECLARED: readonly Touch[] = [{ type: 'unknown' }];

/** `tools`: those that the run has now. */
export function permissionsOf(tools: () => readonly ToolFacts[]): Permissions {
  const grants: GrantedTouch[] = [];
  let judged = false;

  const last = ({ permissions }: JudgedCall): Permission | undefined => permissions.at(-1)?.permission;

  function change(call: JudgedCall, permission: Permission, at: number): void {
    (call.permissions as { at: number; permission: Permission }[]).push({ at, permission });
  }

  /** A grant of the same tool for each touch, by enough of the people who may approve. */
  const factsOf = (name: string): string => definitionOf(tools().find((tool) => tool.name === name));

  function isGranted(name: string, asked: Asked): boolean {
    const { touches = UNDECLARED, required = 1, approvers, eachTime, sandbox = [] } = asked;
    if (eachTime) return false;
    const own = grants.filter(({ tool, facts, by, promises }) => {
      if (promises.some((promise) => !sandbox.includes(promise))) return false;
      const counted = new Set(by.filter((one) => !approvers || approvers.includes(one)));
      return tool === name && facts === factsOf(name) && (counted.size >= required || (required === 1 && !approvers));
    });
    return own.length > 0 && touches.every((touch) => own.some((grant) => grant.touch === textOf(touch)));
  }

  function verdictOn(call: JudgedCall, verdict: RecordedVerdict | undefined, time: number): Permission {
    const allowed = { type: 'allowed', touches: verdict?.touches, sandbox: verdict?.sandbox } as const;
    if (verdict?.type === 'allow') return allowed;
    if (verdict?.type !== 'ask') return DENIED;
    if (isGranted(call.part.name, verdict)) return allowed;
    const { type: _, ttlMs = DAY, ...asked } = verdict;
    const digest = digestOf(partOf(call), verdict);
    return { type: 'asking', digest, expiresAt: time + ttlMs, ...asked };
  }

  return {
    last,
    isJudged: () => judged,
    follow(event) {
      if (event.type === 'run-started') {
        judged = event.rules.judged || event.policy !== undefined;
        for (const { tool, touches, definition, by, sandbox: promises = [] } of event.grants ?? []) {
          // It also counts if the tools become what they were.
          const granted = { tool, facts: definition, by, promises };
          grants.push({ ...granted, touch: undefined });
          for (const touch of touches) grants.push({ ...granted, touch: textOf(touch) });
        }
      }
      if (event.type === 'policy-changed') judged = true;
    },
    judge(call, verdict, time, at) {
      const before = last(call);
      const asked =
        before?.type === 'asking' ? (askUnderRules(before, partOf(call), verdict, time) ?? DENIED) : undefined;
      change(call, asked ?? verdictOn(call, verdict, time), at);
    },
    judgeBegun(call, verdict, time, at) {
      const permission = verdictOn(call, verdict, time);
      change(call, permission.type === 'allowed' ? permission : DENIED, at);
    },
    escalate(call, { reason, ttlMs = DAY, touches, at: time }, at) {
      const before = last(call);
      const sandbox = before?.type === 'allowed' ? before.sandbox : undefined;
      const asked = {
        rule: 'budget',
        eachTime: true,
        onlyThisCall: true,
        raises: true,
        reason,
        ...(touches && { touches }),
        ...(sandbox && { sandbox }),
      } as const;
      change(call, { type: 'asking', digest: digestOf(partOf(call), asked), expiresAt: time + ttlMs, ...asked }, at);
    },
    decide(call, { digest, approved, by, forRun, at: time }, at) {
      const ask = last(call);
      if (ask?.type !== 'asking' || ask.digest !== digest) return;
      if (ask.approvers && !(by !== undefined && ask.approvers.includes(by))) return;
      if (!approved || time >= ask.expiresAt) return change(call, DENIED, at);
      const approvedBy = [...new Set([...(ask.approvedBy ?? []), ...(by === undefined ? [] : [by])])];
      const { required = 1, touches = UNDECLARED, sandbox: promises = [] } = ask;
      const onlyThisCall = ask.onlyThisCall || !forRun;
      if (required > 1 && approvedBy.length < required) {
        return change(call, { ...ask, approvedBy, ...(onlyThisCall && { onlyThisCall: true }) }, at);
      }
      change(call, { type: 'allowed', touches: ask.touches, sandbox: ask.sandbox }, at);
      if (onlyThisCall) return;
      const tool = call.part.name;
      const granted = { tool, facts: factsOf(tool), by: approvedBy, promises };
      grants.push({ ...granted, touch: undefined });
      for (const touch of touches) grants.push({ ...granted, touch: textOf(touch) });
    },
  };
}

/** A touch of a tool that people have allowed. A grant without touches has an undefined one. */
interface GrantedTouch {
  readonly tool: string;
  /** A digest of the tool when it was allowed. */
  readonly facts: string;
  readonly touch: string | undefined;
  readonly by: readonly string[];
  /** The promises of the sandbox that people were asked about. */
  readonly promises: readonly string[];
}

function partOf({ part, check }: JudgedCall): Pick<ToolCall, 'name' | 'arguments'> {
  return { name: part.name, arguments: check?.arguments ?? part.arguments };
}

function definitionOf(facts: ToolFacts | undefined): string {
  return createHash('sha256')
    .update(stableJson(facts ?? null))
    .digest('hex');
}

type Asked = Extract<RecordedVerdict, { type: 'ask' }>;

/** What is touched, and where; how much does not matter. */
function textOf(touch: Touch): string {
  const parts = Object.entries(touch).filter(([name]) => name !== 'lines' && name !== 'bytes');
  return parts
    .map((part) => JSON.stringify(part))
    .toSorted()
    .join(' ');
}

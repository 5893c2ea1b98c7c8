import { createHmac, createSecretKey, timingSafeEqual, type KeyObject } from 'node:crypto';
import type { ReasoningPart } from '@treadle/core';
import type { ServerStore } from '../../engine/engine.ts';
import type { McpCallItem } from './wire.ts';

/**
 * `encrypted_content`: the part of its reasoning that a model needs to get back, for clients that store the conversation
 * themselves. It is base64 of a MAC and of JSON. So it is not secret, but only a server with the same store can create it,
 * and only for the tenant that gets it. The same part always has the same content.
 */
export interface ReasoningSeal {
  /**
   * `after` is set for reasoning that has no text: it is sent as the last item of its turn, and `after` counts the shown
   * parts before it.
   */
  seal(part: ReasoningPart, after?: number): string;
  /**
   * Calls of the server with their results, for a response that is not stored. Clients such as the AI SDK send reasoning with
   * `encrypted_content` back, but not such calls.
   */
  sealCalls(calls: readonly McpCallItem[]): string;
  /** Undefined if this server did not create the content for this tenant. */
  open(content: string): DecodedReasoning | undefined;
}

export interface DecodedReasoning {
  readonly part: ReasoningPart;
  readonly after?: number;
  /** The item is not reasoning of the model, but contains these calls. */
  readonly calls?: readonly McpCallItem[];
}

/** Authenticates bytes for one tenant. */
export interface TenantSeal {
  seal(bytes: Uint8Array): string;
  /** Undefined if the content was not sealed with the same key for the same tenant. */
  open(content: string): Buffer | undefined;
}

/** Makes seals with the store's key of this name. */
export function tenantSeals<Seal>(
  { secretKey }: Pick<ServerStore, 'secretKey'>,
  name: string,
  sealOf: (key: KeyObject, tenant: string) => Seal,
): (tenant: string) => Promise<Seal> {
  // Read when it is first needed. If that fails, it is read again the next time.
  let reading: Promise<KeyObject> | undefined;
  const forget = (): void => {
    reading = undefined;
  };
  return async (tenant) => {
    if (!reading) {
      reading = secretKey(name).then(createSecretKey);
      reading.catch(forget);
    }
    return sealOf(await reading, tenant);
  };
}

const MAC_BYTES = 32;

/** With a `KeyObject` a MAC takes a sixth of the time that it takes with the bytes of the key. */
export function tenantSeal(key: KeyObject, tenant: string): TenantSeal {
  const macOf = (json: Uint8Array): Buffer =>
    createHmac('sha256', key)
      .update(`${JSON.stringify(tenant)}\n`)
      .update(json)
      .digest();
  return {
    seal: (bytes) => Buffer.concat([macOf(bytes), bytes]).toString('base64'),
    open(content) {
      const bytes = Buffer.from(content, 'base64');
      const json = bytes.subarray(MAC_BYTES);
      const mac = bytes.subarray(0, MAC_BYTES);
      return mac.length === MAC_BYTES && timingSafeEqual(mac, macOf(json)) ? json : undefined;
    },
  };
}

export function reasoningSeal(key: KeyObject, tenant: string): ReasoningSeal {
  const sealed = tenantSeal(key, tenant);
  const seal = (content: object): string => sealed.seal(Buffer.from(JSON.stringify(content)));
  return {
    seal: ({ type: _, ...part }, after) => seal({ ...part, after }),
    sealCalls: (calls) => seal({ text: '', calls }),
    open(content) {
      const json = sealed.open(content);
      return json && readReasoning(json, true);
    },
  };
}

/**
 * Reads content that an earlier version created, without a MAC. Anybody can write such content, so it is only for items
 * that are in the store. Undefined if another server created it.
 */
export function unsealedReasoning(content: string): DecodedReasoning | undefined {
  return readReasoning(Buffer.from(content, 'base64'));
}

/** `isSealed`: this server wrote it, so that its calls are known to be well-formed. */
function readReasoning(json: Buffer, isSealed = false): DecodedReasoning | undefined {
  try {
    const { text, summary, signature, protocol, after, calls } = JSON.parse(json.toString('utf8')) ?? {};
    if (typeof text !== 'string') return undefined;
    return {
      part: {
        type: 'reasoning',
        text,
        ...(summary === true && { summary }),
        ...(typeof signature === 'string' && { signature }),
        ...(typeof protocol === 'string' && { protocol }),
      },
      ...(Number.isSafeInteger(after) && { after }),
      ...(isSealed && Array.isArray(calls) && { calls }),
    };
  } catch {
    return undefined;
  }
}

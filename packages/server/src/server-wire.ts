/* The objects of `/v1/server`. Pages import them as types from `@treadle/server/wire`. */

/** The server as the caller may use it. */
export interface ServerInfo {
  readonly object: 'server';
  /** The caller. Null on a server without keys. */
  readonly key: { readonly name: string; readonly tenant: string; readonly scopes: readonly string[] } | null;
  readonly models: readonly ServedModel[];
  readonly tools: readonly ServedTool[];
  /** Those that a client can choose as a model. */
  readonly agents: readonly ServedAgent[];
  /** Those that a message can activate with `/NAME`. */
  readonly skills: readonly ServedSkill[];
  /** What runs did is remembered. */
  readonly has_memory: boolean;
  /** `POST /v1/server/test` is available. */
  readonly can_test_models: boolean;
}

export interface ServedModel {
  readonly id: string;
  /** Used by requests that name no model. */
  readonly is_default: boolean;
  /** Follows fixed rules: no real model is configured. */
  readonly is_demo: boolean;
  readonly accepts: { readonly images: boolean; readonly files: boolean };
}

export interface ServedTool {
  readonly name: string;
  readonly description: string;
  /** Requests that name no tools get it. */
  readonly is_default: boolean;
}

export interface ServedAgent {
  readonly name: string;
  readonly description: string;
  /** The name to send as the model. */
  readonly model: string;
}

export interface ServedSkill {
  readonly name: string;
  readonly description: string;
}

/** The answer of `POST /v1/server/test`. */
export interface WireModelTest {
  readonly object: 'model.test';
  /** Its name. */
  readonly model: string;
  /** It replied. */
  readonly reachable: boolean;
  /** It called a tool. Null: it is not known. */
  readonly tools: boolean | null;
  /** Its reply was streamed. Null: it is not known. */
  readonly streams: boolean | null;
  readonly ms: number;
  readonly error: { readonly code: string; readonly message: string } | null;
}

/** An event of a streamed response before it is numbered: `type` is one that the official client knows. */
export interface StreamEvent {
  readonly type: string;
  readonly [field: string]: unknown;
}

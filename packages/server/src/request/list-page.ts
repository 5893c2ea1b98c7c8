/** A page of a list that is read with `limit` and `cursor`. */
export interface ListPage<T> {
  readonly object: 'list';
  readonly data: readonly T[];
  readonly has_more: boolean;
  /** Null if nothing follows. */
  readonly next_cursor: string | null;
}

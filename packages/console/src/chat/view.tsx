import type { JSX } from 'preact';

export function View(): JSX.Element {
  return (
    <div class="empty">
      <h1>Chat</h1>
    </div>
  );
}

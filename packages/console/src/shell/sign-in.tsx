import { useSignal } from '@preact/signals';
import type { JSX, TargetedSubmitEvent } from 'preact';
import { hasKey, keyRefused, setKey } from '../api/client.ts';
import { loadServerInfo, serverInfo } from '../api/server-info.ts';
import { Icon } from './icon.tsx';

/** Asks for a key of the server. */
export function SignIn(): JSX.Element {
  const problem = useSignal(hasKey() ? keyRefused.value : undefined);
  const isBusy = useSignal(false);

  async function signIn(event: TargetedSubmitEvent<HTMLFormElement>): Promise<void> {
    event.preventDefault();
    const key = String(new FormData(event.currentTarget).get('key')).trim();
    isBusy.value = true;
    problem.value = undefined;
    setKey(key);
    // The key before was revoked. Nothing of its tenant stays in the page.
    if (serverInfo.value) return location.reload();
    try {
      await loadServerInfo();
    } catch (error) {
      setKey(undefined);
      problem.value = error instanceof Error ? error.message : String(error);
    } finally {
      isBusy.value = false;
    }
  }

  return (
    <main class="sign-in">
      <form class="card" onSubmit={(event) => void signIn(event)}>
        <span class="sign-in-mark">
          <Icon name="shield" size={28} />
        </span>
        <h1>Sign in</h1>
        <p class="muted">This server needs an API key. It stays in this tab, and is sent to this server only.</p>
        <label class="field">
          <span>API key</span>
          <input
            name="key"
            type="password"
            required
            autocomplete="current-password"
            spellcheck={false}
            aria-describedby={problem.value ? 'sign-in-problem' : undefined}
          />
        </label>
        {problem.value && (
          <p id="sign-in-problem" class="problem" role="alert">
            {problem.value}
          </p>
        )}
        <button type="submit" class="button primary" disabled={isBusy.value}>
          {isBusy.value ? 'Signing in…' : 'Sign in'}
        </button>
        <p class="muted small">
          <code>treadle key new</code> creates a key. Chat needs the scopes chat:read and chat:write, runs need
          runs:read and runs:write.
        </p>
      </form>
    </main>
  );
}

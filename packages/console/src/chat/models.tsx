import { useSignal } from '@preact/signals';
import { durationText } from '@treadle/core/describe';
import type { ServedModel, WireModelTest } from '@treadle/server/wire';
import type { JSX } from 'preact';
import { request } from '../api/client.ts';
import { serverInfo } from '../api/server-info.ts';
import { CodeBlock } from '../markdown/markdown.tsx';
import { Dialog } from '../shell/dialog.tsx';

/** What is shown of a test, also if its request failed. */
type TestResult = Omit<WireModelTest, 'object' | 'model'>;

/** The models of the server, whether they work, and how to set another one. */
export function ModelsDialog({ onClose }: { readonly onClose: () => void }): JSX.Element {
  const { models = [], can_test_models: canTest = false } = serverInfo.value ?? {};
  return (
    <Dialog title="Models" onClose={onClose}>
      <ul class="models">
        {models.map((model) => (
          <Model key={model.id} model={model} canTest={canTest} />
        ))}
      </ul>
      <HowToSet isDemo={models.every((model) => model.is_demo)} />
    </Dialog>
  );
}

function Model({ model, canTest }: { readonly model: ServedModel; readonly canTest: boolean }): JSX.Element {
  const state = useSignal<'idle' | 'busy' | TestResult>('idle');
  const { id, is_default: isDefault, is_demo: isDemo } = model;

  async function test(): Promise<void> {
    state.value = 'busy';
    state.value = await request<TestResult>('POST', '/v1/server/test', { body: { model: id } }).catch(
      (error: unknown): TestResult => ({
        reachable: false,
        tools: null,
        streams: null,
        ms: 0,
        error: { code: 'failed', message: error instanceof Error ? error.message : String(error) },
      }),
    );
  }

  const found = typeof state.value === 'object' ? state.value : undefined;
  const works = found?.reachable && found.tools === true;
  return (
    <li class="model">
      <div class="model-head">
        <strong>{id}</strong>
        {isDefault && <span class="chip">default</span>}
        {isDemo && <span class="chip warn">demo: fixed rules</span>}
        <span class="spacer" />
        {canTest && (
          <button type="button" class="button" disabled={state.value === 'busy'} onClick={() => void test()}>
            {state.value === 'busy' ? 'Testing…' : 'Test'}
          </button>
        )}
      </div>
      <div role="status">
        {found && (
          <p class={works ? 'note good' : 'problem'}>
            {works
              ? `It works: it replies, calls tools${found.streams ? ' and streams' : ''} (${durationText(found.ms)}).`
              : (found.error?.message ?? 'It replies, but does not call tools.')}
          </p>
        )}
      </div>
    </li>
  );
}

const LINES = `# treadle.toml, in the folder where you start the server
[models.main]
provider = "openai"        # or anthropic, ollama, groq, mistral, …
model = "gpt-5-mini"
api_key_env = "OPENAI_API_KEY"`;

function HowToSet({ isDemo }: { readonly isDemo: boolean }): JSX.Element {
  return (
    <section class="how-to">
      <h3>{isDemo ? 'Use a real model' : 'Use another model'}</h3>
      <p>
        The quickest way is a key in the environment of the server: set <code>OPENAI_API_KEY</code>, and start it again.
        For a model on your own machine:
      </p>
      <CodeBlock language="sh" code="treadle serve --base-url http://localhost:11434/v1 --model llama3.2" isComplete />
      <p>For several models, or another provider:</p>
      <CodeBlock language="toml" code={LINES} isComplete />
      <p class="muted small">Then start the server again, reload this page, and test the model here.</p>
    </section>
  );
}

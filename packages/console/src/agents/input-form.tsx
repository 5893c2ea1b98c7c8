import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import { announce } from '../shell/announce.tsx';
import { Field } from '../shell/fields.tsx';
import { fieldsOf, inputsFrom } from '../shell/form.ts';

export function Problem({ text }: { readonly text: string | undefined }): JSX.Element | null {
  if (text === undefined) return null;
  return (
    <p class="problem" role="alert">
      {text}
    </p>
  );
}

interface InputFormProps {
  /** Of the agent or the workflow. */
  readonly name: string;
  readonly schema: object;
  /** Resolves to the id of the run. */
  readonly start: (inputs: unknown) => Promise<string>;
  readonly onStarted: (run: string) => void;
}

/** A form for inputs. It starts runs in the background, so that they go on if the page is closed. */
export function InputForm({ name, schema, start, onStarted }: InputFormProps): JSX.Element {
  const fields = fieldsOf(schema);
  const problem = useSignal<string | undefined>(undefined);
  const isSending = useSignal(false);

  async function send(form: HTMLFormElement): Promise<void> {
    const read = inputsFrom(fields, new FormData(form));
    problem.value = read.problem;
    if (read.problem !== undefined) return;
    isSending.value = true;
    try {
      onStarted(await start(read.inputs));
      announce(`${name} has started.`);
    } catch (error) {
      problem.value = (error as Error).message;
    } finally {
      isSending.value = false;
    }
  }

  return (
    <form
      class="card agent-form"
      aria-label={`Inputs of ${name}`}
      onSubmit={(event) => {
        event.preventDefault();
        void send(event.currentTarget);
      }}
    >
      {fields.map((field) => (
        <Field key={field.name} field={field} />
      ))}
      {fields.length === 0 && <p class="muted">It takes no inputs.</p>}
      <Problem text={problem.value} />
      <button type="submit" class="button primary" disabled={isSending.value}>
        Run
      </button>
    </form>
  );
}

import type { JSX } from 'preact';
import type { FormField } from './form.ts';
import './fields.css';

/** An input for a property of a schema, with its label and its description. */
export function Field({ field }: { readonly field: FormField }): JSX.Element {
  const { name, kind, description, isRequired, initial, choices } = field;
  const id = `input-${name}`;
  const common = { id, name, required: isRequired, 'aria-describedby': description === '' ? undefined : `${id}-about` };
  return (
    <div class="form-field">
      <label for={id}>
        {name}
        {isRequired && <span class="muted small"> (required)</span>}
      </label>
      {choices ? (
        <select class="input" {...common}>
          {!isRequired && <option value="" />}
          {choices.map((choice) => (
            <option key={choice} value={choice} selected={choice === initial}>
              {choice}
            </option>
          ))}
        </select>
      ) : kind === 'boolean' ? (
        <input type="checkbox" {...common} required={false} defaultChecked={initial === 'true'} />
      ) : kind === 'number' || kind === 'integer' ? (
        <input class="input" type="number" step={kind === 'integer' ? 1 : 'any'} {...common} defaultValue={initial} />
      ) : (
        <textarea class="input" rows={kind === 'json' ? 4 : 2} {...common} defaultValue={initial} />
      )}
      {description !== '' && (
        <p id={`${id}-about`} class="muted small">
          {description}
        </p>
      )}
    </div>
  );
}

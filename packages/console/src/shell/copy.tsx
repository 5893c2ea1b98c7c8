import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import { announce } from './announce.tsx';
import { Icon } from './icon.tsx';

export interface CopyButtonProps {
  readonly text: () => string;
  readonly label: string;
}

const SHOWN_MS = 1_500;

export function CopyButton({ text, label }: CopyButtonProps): JSX.Element {
  const isCopied = useSignal(false);
  const copy = async (): Promise<void> => {
    if (!(await copyText(text()))) return;
    isCopied.value = true;
    announce('Copied');
    setTimeout(() => (isCopied.value = false), SHOWN_MS);
  };
  return (
    <button type="button" class="icon-button small-icon" aria-label={label} title={label} onClick={() => void copy()}>
      <Icon name={isCopied.value ? 'check' : 'copy'} size={16} />
    </button>
  );
}

/** Browsers have the clipboard API only on https and localhost. */
async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = document.createElement('textarea');
    field.value = text;
    document.body.append(field);
    field.select();
    const isCopied = document.execCommand('copy');
    field.remove();
    return isCopied;
  }
}

import { useState } from "react";

type Props = { rows: Row[]; onRemove: (id: string) => void };

export function Cart({ rows, onRemove }: Props) {
  const [open, setOpen] = useState(false);
  const total = rows.reduce((sum, row) => sum + row.price * row.count, 0);
  if (rows.length === 0) {
    return <p className="empty">Remember the tea.</p>;
  }
  return (
    <section className={`cart ${open ? "open" : ""}`}>
      {rows.map((row) => (
        <li key={row.id} onClick={() => onRemove(row.id)}>
          {row.name} <b>{row.count}</b>
        </li>
      ))}
      <button type="button" onClick={() => setOpen(!open)}>
        {`Total: ${total.toFixed(2)}`}
      </button>
    </section>
  );
}

import { useEffect, useState } from "react";

export function Prices({ items, currency = "€" }) {
  const [shown, setShown] = useState(items.slice(0, 20));

  useEffect(() => {
    const timer = setTimeout(() => setShown(items.filter((item) => item.price > 0)), 1500);
    return () => clearTimeout(timer);
  }, [items]);

  return (
    <ul className="prices">
      {shown.map((item) => <li key={item.id}>{`${item.name}: ${item.price} ${currency}`}</li>)}
    </ul>
  );
}

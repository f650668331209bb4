<?php

namespace Shop;

class Mailer
{
    private array $sent = [];

    public function send(string $to, string $text): bool
    {
        if (!filter_var($to, FILTER_VALIDATE_EMAIL)) {
            throw new \InvalidArgumentException("no address: {$to}");
        }
        foreach ($this->headers(['to' => $to]) as $name => $value) {
            $text = sprintf('%s: %s', $name, $value) . "\n" . $text;
        }
        $this->sent[] = ['to' => $to, 'text' => $text];
        return mail($to, "It's your order", $text);
    }
}

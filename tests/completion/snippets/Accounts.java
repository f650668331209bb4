package org.example.bank;

import java.util.*;

public final class Accounts {
    private static final int MAX_ACCOUNTS = 1_000;
    private final Map<String, Long> balances = new HashMap<>();

    /** Transfers an amount – never more than there is. */
    public synchronized boolean transfer(String from, String to, long amount) {
        Long available = balances.get(from);
        if (available == null || available < amount) {
            return false;
        }
        balances.put(from, available - amount);
        balances.merge(to, amount, Long::sum);
        return true;
    }
}

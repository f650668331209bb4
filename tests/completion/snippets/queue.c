#include <stdio.h>
#include <stdlib.h>

#define CAPACITY 64

struct queue {
	int		 values[CAPACITY];
	size_t	 head, size;
};

/* Adds a value; -1 if the queue is full. */
int queue_push(struct queue *q, int value)
{
	if (q->size == CAPACITY)
		return -1;

	q->values[(q->head + q->size++) % CAPACITY] = value;
	return 0;
}

int main(void)
{
	struct queue q = { .head = 0, .size = 0 };
	for (int i = 0; i < 10; i++)
		printf("%d: %s\n", i, queue_push(&q, i * 0x1F) ? "full" : "ok");
	return EXIT_SUCCESS;
}

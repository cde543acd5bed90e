"""How a task calls the functions of users: with which rows, and what it says if they fail."""

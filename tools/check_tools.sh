#!/bin/sh
# One line for what is missing, before anything is installed. Usage: check_tools.sh PYTHON
fail() { echo "error: $1" >&2; exit 1; }

command -v "$1" >/dev/null 2>&1 || fail "no $1 on the path; install Python 3.10 or newer"
"$1" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || fail "$1 is $("$1" -V 2>&1); install Python 3.10 or newer, or say PYTHON=..."
"$1" -c 'import ensurepip, venv' 2>/dev/null || fail "$1 cannot make virtual environments; install its venv package (python3-venv)"

java=java
[ -n "$JAVA_HOME" ] && java="$JAVA_HOME/bin/java"
command -v "$java" >/dev/null 2>&1 || fail "no Java found; install a JDK 17"
version=$("$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1)
[ "${version:-0}" -ge 17 ] || fail "Java ${version:-unknown} found; install a JDK 17"
[ "$java" = java ] && javac=javac || javac="$JAVA_HOME/bin/javac"
command -v "$javac" >/dev/null 2>&1 || fail "Java $version has no compiler (javac); install a JDK 17, not only a runtime"

command -v sbt >/dev/null 2>&1 || command -v mvn >/dev/null 2>&1 || fail "neither sbt nor Maven found; install Maven (mvn) or sbt"
